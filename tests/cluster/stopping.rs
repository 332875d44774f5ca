//! Each side, each shard and each pair, stopped and killed in every order: the rest waits or continues as it should, reports
//! on what it is blocked, and training resumes afterwards.

use std::cell::Cell;
use std::slice;

use rustix::process::Signal;

use crate::harness::Cluster;
use crate::process::{Process, until};

/// What is stopped or killed as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Learner,
    /// Both of them: one side of the ratio.
    Actors,
    Shard(usize),
}

const PARTS: [Part; 4] = [Part::Learner, Part::Actors, Part::Shard(0), Part::Shard(1)];

/// Two shards and two actors of one lane, so that actor `i` writes to shard `i`. The replay is filled soon, and one shard
/// alone is enough of it.
fn cluster() -> Cluster {
    let flags = ["--min-size", "64", "--batch-size", "32", "--samples-per-insert", "16"];
    let cluster = Cluster::start(2, 2, &flags);
    cluster.fill(100);
    cluster.moves_on(&[0, 1]);
    cluster
}

/// All pairs, in both orders.
fn pairs() -> impl Iterator<Item = [Part; 2]> {
    let with =
        |one: Part| PARTS.into_iter().filter(move |other| *other != one).map(move |other| [one, other]);
    PARTS.into_iter().flat_map(with)
}

/// The processes of a part.
fn processes(cluster: &mut Cluster, part: Part) -> &mut [Process] {
    match part {
        Part::Learner => slice::from_mut(&mut cluster.learner),
        Part::Actors => &mut cluster.actors,
        Part::Shard(index) => slice::from_mut(&mut cluster.shards[index]),
    }
}

fn stop(cluster: &mut Cluster, part: Part) {
    processes(cluster, part).iter().for_each(Process::stop);
}

fn resume_part(cluster: &mut Cluster, part: Part) {
    processes(cluster, part).iter().for_each(Process::resume);
}

fn kill(cluster: &mut Cluster, part: Part) {
    processes(cluster, part).iter_mut().for_each(Process::kill);
}

fn start(cluster: &mut Cluster, part: Part) {
    match part {
        Part::Learner => cluster.start_learner(),
        Part::Actors => (0..cluster.actors.len()).for_each(|index| cluster.start_actor(index)),
        Part::Shard(index) => cluster.start_shard(index),
    }
}

/// Waits until a condition holds while `count` stands still. Anyone waits now and then for a moment.
#[track_caller]
fn until_held(what: &str, count: impl Fn() -> f64, condition: impl Fn() -> bool) {
    let (last, looks) = (Cell::new(f64::NAN), Cell::new(0));
    until(what, || {
        let now = count();
        let same = condition() && last.replace(now) == now;
        looks.set(if same { looks.get() + 1 } else { 0 });
        looks.get() >= 10
    });
}

/// What those do who are not stopped, and what they say.
fn the_rest_blocks_or_continues(cluster: &Cluster, stopped: &[Part]) {
    let is_stopped = |part: Part| stopped.contains(&part);
    let shards: Vec<usize> = (0..2).filter(|&index| !is_stopped(Part::Shard(index))).collect();
    if !is_stopped(Part::Learner) {
        let waits_for: &[&str] = match (shards.len(), is_stopped(Part::Actors)) {
            (0, _) => &["shards", "filling"],
            (_, true) => &["inserts"],
            (_, false) => &[],
        };
        if waits_for.is_empty() {
            cluster.moves_on(&shards);
        } else {
            let what = format!("the learner waits for {waits_for:?}");
            until_held(&what, || cluster.updates(), || cluster.learner_waits_for(waits_for));
        }
        until("the learner knows how many shards answer", || {
            cluster.learner.metric("quiver_learner_shards_reachable") == shards.len() as f64
        });
    }
    if !is_stopped(Part::Actors) {
        for (index, actor) in cluster.actors.iter().enumerate() {
            if is_stopped(Part::Learner) || is_stopped(Part::Shard(index)) {
                until_held(
                    &format!("actor {index} waits for its shard"),
                    || actor.metric("quiver_actor_agent_steps_total"),
                    || actor.metric("quiver_actor_blocked{on=\"shard\"}") == 1.0,
                );
            }
        }
    }
    if is_stopped(Part::Learner) && !is_stopped(Part::Actors) {
        for &shard in &shards {
            until(&format!("a writer waits at shard {shard}"), || {
                cluster.shards[shard].metric("quiver_replay_writers_blocked") >= 1.0
            });
            let status = cluster.info(shard).shard.unwrap();
            let inserts = status.counters.unwrap().inserts;
            assert!(inserts >= status.allowance && status.writers_blocked >= 1, "{status:?}");
        }
    }
}

#[test]
fn when_one_process_is_stopped_the_others_report_it() {
    let cluster = cluster();
    let says = |log: &dyn Fn() -> String, words: &str| {
        until(&format!("the log says {words:?}"), || log().contains(words));
    };

    cluster.learner.stop();
    for actor in &cluster.actors {
        says(&|| actor.log(), "insert allowance");
        until("health says so", || actor.page("/healthz").starts_with("waiting for shard "));
    }
    cluster.learner.resume();
    cluster.moves_on(&[0, 1]);
    for actor in &cluster.actors {
        until("health is well again", || actor.page("/healthz") == "ok\n");
    }

    cluster.actors.iter().for_each(Process::stop);
    says(&|| cluster.learner.log(), "blocked_on=inserts:");
    cluster.actors.iter().for_each(Process::resume);
    cluster.moves_on(&[0, 1]);

    cluster.shards[0].stop();
    says(&|| cluster.learner.log(), "shard unreachable");
    says(&|| cluster.actors[0].log(), "shard unreachable");
    cluster.shards[1].stop();
    says(&|| cluster.learner.log(), &format!("last at {}", cluster.shard_address(0)));
    cluster.shards[0].resume();
    cluster.shards[1].resume();
    cluster.moves_on(&[0, 1]);
}

#[test]
fn a_blocked_actor_that_is_asked_to_stop_logs_what_it_drops() {
    let mut cluster = cluster();
    cluster.learner.stop();
    let actor = &mut cluster.actors[0];
    until("the actor is blocked", || actor.metric("quiver_actor_blocked{on=\"shard\"}") == 1.0);
    actor.signal(Signal::TERM);
    assert!(actor.end().success(), "{}", actor.log());
    let log = actor.log();
    let line = log.lines().find(|line| line.contains("unacknowledged chunks dropped"));
    let line = line.unwrap_or_else(|| panic!("no loss is logged: {log}"));
    assert!(line.contains("WARN") && line.contains("chunks=") && line.contains("steps="), "{line}");
    cluster.learner.resume();
}

#[test]
fn each_process_and_each_pair_can_be_stopped_in_every_order_and_training_continues() {
    let mut cluster = cluster();
    for part in PARTS {
        stop(&mut cluster, part);
        the_rest_blocks_or_continues(&cluster, &[part]);
        resume_part(&mut cluster, part);
        cluster.moves_on(&[0, 1]);
    }
    // Each pair comes in both orders. The order of resuming matters: stops follow each other at once.
    for pair in pairs() {
        println!("stopping {pair:?}");
        pair.iter().for_each(|&part| stop(&mut cluster, part));
        the_rest_blocks_or_continues(&cluster, &pair);
        resume_part(&mut cluster, pair[0]);
        the_rest_blocks_or_continues(&cluster, &pair[1..]);
        resume_part(&mut cluster, pair[1]);
        cluster.moves_on(&[0, 1]);
    }
}

#[test]
fn each_process_and_each_pair_can_be_killed_and_started_in_every_order_and_training_continues() {
    let mut cluster = cluster();
    for part in PARTS {
        kill(&mut cluster, part);
        start(&mut cluster, part);
        cluster.moves_on(&[0, 1]);
    }
    for pair in pairs() {
        println!("killing and starting {pair:?}");
        pair.iter().for_each(|&part| kill(&mut cluster, part));
        pair.iter().for_each(|&part| start(&mut cluster, part));
        cluster.moves_on(&[0, 1]);
    }
}

#[test]
fn fewer_lanes_than_shards_train_all_the_same() {
    let cluster = Cluster::start(3, 1, &["--min-size", "128", "--lanes", "1"]);
    cluster.moves_on(&[0]);
    assert_eq!([1, 2].map(|shard| cluster.counters(shard).inserts), [0, 0], "its lane has one shard");
}
