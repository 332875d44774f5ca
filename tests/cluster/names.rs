//! Several shards behind one name, as containers are: counted when the run first starts, and found again wherever the name
//! leads later.

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;

use rpc::address::Address;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::harness::{configure, folder, turn};
use crate::process::{Process, until};
use crate::wire;

/// A learner that knows its shards by the name `shards.test`, and an actor.
struct Named {
    folder: TempDir,
    runtime: Runtime,
    port: u16,
    learner: Process,
    _actor: Process,
}

impl Named {
    fn at(&self, ip: &str) -> Address {
        Address::Tcp(format!("{ip}:{}", self.port))
    }

    /// The name leads to these from now on.
    fn lead_to(&self, ips: &[&str]) {
        let lines: String = ips.iter().map(|ip| format!("{ip} shards.test\n")).collect();
        // A reader sees all of it or the former content.
        let unfinished = self.folder.path().join("hosts.new");
        fs::write(&unfinished, lines).unwrap();
        fs::rename(unfinished, self.folder.path().join("hosts")).unwrap();
    }

    fn shard(&self, ip: &str, data: &str) -> Process {
        shard(&self.folder, ip, self.port, data)
    }

    fn name(&self, ip: &str) -> String {
        self.runtime.block_on(wire::info(&self.at(ip))).shard.unwrap().id
    }

    fn inserts(&self, ip: &str) -> u64 {
        self.runtime.block_on(wire::info(&self.at(ip))).shard.unwrap().counters.unwrap().inserts
    }

    /// Training makes progress from here, with inserts into each of these.
    #[track_caller]
    fn moves_on(&self, ips: &[&str]) {
        let updates = self.learner.metric("quiver_learner_updates_total");
        until("the learner makes updates", || {
            self.learner.metric("quiver_learner_updates_total") > updates + 40.0
        });
        for ip in ips {
            let inserts = self.inserts(ip);
            until(&format!("the shard at {ip} is inserted into"), || self.inserts(ip) > inserts + 20);
        }
    }

    /// What the run's directory remembers.
    fn remembered(&self) -> BTreeSet<String> {
        let text = fs::read(self.folder.path().join("run/shards.json")).unwrap();
        let kept: serde_json::Value = serde_json::from_slice(&text).unwrap();
        kept["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}

fn shard(folder: &TempDir, ip: &str, port: u16, data: &str) -> Process {
    let data = folder.path().join(data).display().to_string();
    let arguments = ["--listen".into(), format!("{ip}:{port}"), "--data-dir".into(), data];
    Process::start(folder.path(), &format!("shard-{ip}"), "quiver-replay-server", &arguments)
}

fn learner(folder: &TempDir, port: u16) -> Process {
    let at = |name: &str| folder.path().join(name).display().to_string();
    let mut arguments = vec!["--config".into(), at("config.toml"), "--run-dir".into(), at("run")];
    arguments.extend(["--listen".into(), format!("unix:{}", at("l")), "--hosts".into(), at("hosts")]);
    arguments.extend(["--shard".into(), format!("shards.test:{port}")]);
    Process::start(folder.path(), "learner", "quiver-learner", &arguments)
}

#[test]
fn shards_behind_one_name_are_counted_once_and_found_again_wherever_they_are() {
    let _turn = turn();
    let folder = folder();
    configure(folder.path(), 1, 1, &["--min-size", "128", "--lanes", "4"]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut first = shard(&folder, "127.0.0.11", port, "data");
    let learner_process = learner(&folder, port);
    let socket = format!("unix:{}", folder.path().join("l").display());
    let actor = Process::start(folder.path(), "actor", "quiver-actor", &["--learner".into(), socket]);
    let mut named = Named { folder, runtime: wire::runtime(), port, learner: learner_process, _actor: actor };
    until("the learner looks for the shards", || named.learner.log().contains("shard discovery waiting"));

    // The second is there a little later than the name that leads to it.
    named.lead_to(&["127.0.0.11", "127.0.0.12"]);
    let mut second = named.shard("127.0.0.12", "data");
    named.moves_on(&["127.0.0.11", "127.0.0.12"]);
    let names = [named.name("127.0.0.11"), named.name("127.0.0.12")];
    assert_eq!(named.remembered(), names.iter().cloned().collect());

    // One comes back elsewhere.
    let held = named.inserts("127.0.0.11");
    first.kill();
    first = named.shard("127.0.0.13", "data");
    named.lead_to(&["127.0.0.12", "127.0.0.13"]);
    named.moves_on(&["127.0.0.12", "127.0.0.13"]);
    assert_eq!(named.name("127.0.0.13"), names[0], "the process that takes the slot is the shard");
    assert!(named.inserts("127.0.0.13") > held, "it has what it had");

    // A stranger comes where the other one was, and another one joins them.
    second.kill();
    let _stranger = named.shard("127.0.0.12", "other");
    second = named.shard("127.0.0.14", "data");
    assert_eq!(named.name("127.0.0.14"), names[1], "its slot is the first that is free");
    let _extra = named.shard("127.0.0.15", "data");
    named.lead_to(&["127.0.0.12", "127.0.0.13", "127.0.0.14", "127.0.0.15"]);
    named.moves_on(&["127.0.0.13", "127.0.0.14"]);
    assert_eq!([named.name("127.0.0.13"), named.name("127.0.0.14")], names);
    assert_eq!(
        [named.inserts("127.0.0.12"), named.inserts("127.0.0.15")],
        [0, 0],
        "no writer wrote to those"
    );

    // A learner that comes back asks for those that it began with, all of whom have moved meanwhile.
    named.learner.kill();
    first.kill();
    second.kill();
    let _first = named.shard("127.0.0.16", "data");
    let _second = named.shard("127.0.0.17", "data");
    named.lead_to(&["127.0.0.12", "127.0.0.15", "127.0.0.16", "127.0.0.17"]);
    named.learner = learner(&named.folder, port);
    named.moves_on(&["127.0.0.16", "127.0.0.17"]);
    assert_eq!(named.remembered(), names.into_iter().collect());
    assert_eq!([named.inserts("127.0.0.12"), named.inserts("127.0.0.15")], [0, 0]);
}
