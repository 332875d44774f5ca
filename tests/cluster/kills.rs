//! `quiver train` under fire: its children, and itself, killed at any moment.

use std::collections::HashMap;

use proto::BatchItem;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::ItemKey;
use rustix::process::{Pid, Signal, kill_process};
use tokio::runtime::Runtime;

use crate::launcher::{Entry, Launched};
use crate::process::{until, until_some};
use crate::wire;

const KILLS: usize = 50;

/// Two shards, two actors; checkpoints and evaluations often.
const FLAGS: [&str; 14] = [
    "--shards",
    "2",
    "--actors",
    "2",
    "--min-size",
    "128",
    "--samples-per-insert",
    "32",
    "--checkpoint-every-frames",
    "500",
    "--evaluate-every-frames",
    "2000",
    "--evaluate-final-episodes",
    "5",
];
const ENDLESS: [&str; 2] = ["--frames", "100000000"];

fn kill(entry: &Entry) {
    // It may have ended by itself just now.
    let _ = Pid::from_raw(entry.pid as i32).map(|pid| kill_process(pid, Signal::KILL));
}

/// Waits until a learner, whichever, makes updates.
#[track_caller]
fn moves_on(launched: &mut Launched) {
    let updates = "quiver_learner_updates_total";
    let mut life: Option<(u32, f64)> = None;
    until_some("training moves on", || {
        assert!(launched.process.ended().is_none(), "the launcher ended: {}", launched.process.log());
        let pid = launched.roster().into_iter().find(|entry| entry.name == "learner")?.pid;
        let now = launched.learner(updates)?;
        match life {
            Some((before, from)) if before == pid => (now >= from + 20.0).then_some(()),
            _ => {
                life = Some((pid, now));
                None
            }
        }
    });
}

/// All transitions that were ever seen in a shard, by where they came from.
#[derive(Default)]
struct Seen {
    items: HashMap<(u32, u64, u32, u64), (usize, ItemKey)>,
    drawn: usize,
}

impl Seen {
    /// Looks into all shards that answer. A lane keeps its shard, and a shard keeps all it has through any kill, so a
    /// transition has one name for ever.
    fn look(&mut self, launched: &Launched, runtime: &Runtime) {
        let (Some(run), Some(incarnation)) = (launched.file("run-id"), launched.file("learner-incarnation"))
        else {
            return;
        };
        for shard in 0..2 {
            let Some(address) = launched.shard_address(shard) else { continue };
            let points = wire::even_points(4096);
            let drawn = runtime.block_on(wire::sample(&address, &run, incarnation.parse().unwrap(), points));
            // Killed just now, or a newer learner has called meanwhile.
            let Ok(batch) = drawn else { continue };
            self.drawn += batch.len();
            batch.items().for_each(|item| self.take(shard, &item));
        }
    }

    fn take(&mut self, shard: usize, item: &BatchItem<'_>) {
        let (lane, key) = (item.lane(), item.key());
        let origin = (lane.actor, lane.incarnation, lane.lane, item.first_step());
        let Some((before, known)) = self.items.insert(origin, (shard, key)) else { return };
        assert_eq!(before, shard, "a lane keeps its shard: {origin:?}");
        assert_eq!(known, key, "{origin:?} is in shard {shard} twice");
    }
}

#[test]
fn fifty_kills_of_any_process_are_survived_and_no_transition_is_doubled() {
    let mut launched = Launched::start(&[&FLAGS[..], &ENDLESS].concat());
    let runtime = wire::runtime();
    let mut rng = ChaCha8Rng::seed_from_u64(50);
    let mut seen = Seen::default();
    let names = ["shard-0", "shard-1", "learner", "actor-0", "actor-1", "evaluator"];
    names.iter().for_each(|name| drop(launched.child(name)));
    moves_on(&mut launched);
    let mut killed = HashMap::new();
    for number in 0..KILLS {
        let name = names[rng.random_range(0..names.len())];
        // Who was killed just now may still be down.
        let entry = launched.child(name);
        kill(&entry);
        *killed.entry(name).or_insert(0) += 1;
        println!("kill {number}: {name}, {:?} frames", launched.learner("quiver_learner_frames"));
        // Mostly it is survived before the next one comes, sometimes two come together.
        if rng.random_range(0..4) > 0 {
            moves_on(&mut launched);
            seen.look(&launched, &runtime);
        }
    }
    moves_on(&mut launched);
    seen.look(&launched, &runtime);
    println!("killed {killed:?}; {} transitions in {} draws", seen.items.len(), seen.drawn);
    assert!(seen.items.len() > 1000 && names.iter().all(|name| killed.contains_key(name)));

    // Ctrl-C ends them all with a checkpoint.
    names.iter().for_each(|name| drop(launched.child(name)));
    let children = launched.roster();
    launched.process.signal(Signal::INT);
    assert_eq!(launched.process.end().code(), Some(0), "{}", launched.process.log());
    launched.are_gone(&children);
    let kept = launched.newest_checkpoint();

    // The run resumes from it, is killed some more times, and finishes.
    let budget = kept + 4000;
    launched.resume(&["--frames", &budget.to_string()]);
    for name in names {
        kill(&launched.child(name));
        moves_on(&mut launched);
        seen.look(&launched, &runtime);
    }
    assert!(
        launched.learner("quiver_learner_frames").is_none_or(|frames| frames >= kept as f64),
        "it resumes"
    );
    let children = launched.roster();
    assert_eq!(launched.process.end().code(), Some(0), "{}", launched.process.log());
    launched.are_gone(&children);
    launched.ended_well(budget, 5);
}

#[test]
fn all_children_exit_with_a_killed_launcher_and_the_run_can_be_resumed() {
    let mut launched = Launched::start(&[&FLAGS[..], &ENDLESS].concat());
    let names = ["shard-0", "shard-1", "learner", "actor-0", "actor-1", "evaluator"];
    let children = names.map(|name| launched.child(name));
    until("there is a checkpoint", || {
        !run::checkpoint::numbers(&launched.run().join("checkpoints")).is_empty()
    });
    launched.process.kill();
    until(&format!("all are gone of {children:?}"), || !children.iter().any(crate::launcher::is_there));

    let budget = launched.newest_checkpoint() + 1500;
    launched.resume(&["--frames", &budget.to_string()]);
    assert_eq!(launched.process.end().code(), Some(0), "{}", launched.process.log());
    launched.ended_well(budget, 5);
}
