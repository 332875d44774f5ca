//! A whole cluster between machines, as far as one machine shows it: everything over TCP and TLS, with tokens or with
//! certificates; and strangers, who are refused, logged once, and change nothing for the others.

use std::fs;
use std::path::{Path, PathBuf};

use proto::v1;
use proto::v1::learner_client::LearnerClient;
use proto::v1::replay_client::ReplayClient;
use rpc::address::Address;
use rpc::channel::{Credentials, channel};
use rpc::role::Role;
use tempfile::TempDir;
use tonic::Code;

use crate::harness::{configure, folder, turn};
use crate::process::{Process, command, until};
use crate::wire::{self, patiently};

struct Secured {
    folder: TempDir,
    shard_address: Address,
    learner_address: Address,
    shard: Process,
    learner: Process,
    actor: Process,
}

fn free_address() -> Address {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    Address::Tcp(listener.local_addr().unwrap().to_string())
}

/// `quiver` with these words; what it printed.
fn quiver(words: &[&str]) -> Result<String, String> {
    let done = command("quiver").args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
}

impl Secured {
    fn start(flags: &[&str]) -> Self {
        let folder = folder();
        configure(folder.path(), 1, 1, &["--min-size", "128", "--lanes", "2"]);
        let at = |name: &str| folder.path().join(name).display().to_string();
        quiver(&[&["certs", "--out", &at("secrets")], flags].concat()).unwrap();
        let (shard_address, learner_address) = (free_address(), free_address());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (shard_at, learner_at) =
            (shard_address.authority().unwrap(), learner_address.authority().unwrap());
        let start = |name: &str, program: &str, arguments: &[&str]| {
            let secrets = at(&format!("secrets/{name}"));
            let arguments = [&words(arguments)[..], &words(&["--secrets", &secrets])].concat();
            Process::start(folder.path(), name, program, &arguments)
        };
        let shard =
            start("replay", "quiver-replay-server", &["--listen", shard_at, "--data-dir", &at("data")]);
        let (config, run) = (at("config.toml"), at("run"));
        let learner = ["--config", &config, "--run-dir", &run, "--listen", learner_at, "--shard", shard_at];
        let learner = start("learner", "quiver-learner", &learner);
        let actor = start("actor", "quiver-actor", &["--learner", learner_at]);
        Self { shard_address, learner_address, shard, learner, actor, folder }
    }

    fn secrets(&self, of: &str) -> PathBuf {
        self.folder.path().join("secrets").join(of)
    }

    #[track_caller]
    fn trains_on(&self) {
        let updates = self.learner.metric("quiver_learner_updates_total");
        until("the learner makes updates", || {
            self.learner.metric("quiver_learner_updates_total") > updates + 40.0
        });
    }

    fn inspect(&self, secrets: &Path) -> Result<String, String> {
        let (address, secrets) = (self.shard_address.to_string(), secrets.display().to_string());
        quiver(&["inspect", &address, "--json", "--secrets", &secrets])
    }
}

#[test]
fn a_cluster_trains_over_tls_and_strangers_are_refused_and_logged_once() {
    let _turn = turn();
    let cluster = Secured::start(&[]);
    cluster.trains_on();
    assert!(cluster.inspect(&cluster.secrets("admin")).unwrap().contains("samples_per_insert"));
    let refused = cluster.inspect(&cluster.secrets("actor")).unwrap_err();
    assert!(refused.contains("actor may not call"), "{refused}");

    let runtime = wire::runtime();
    runtime.block_on(async {
        let actor = Credentials::load(Some(&cluster.secrets("actor"))).unwrap();
        let mut as_actor = ReplayClient::new(actor.channel(Role::Replay, &cluster.shard_address));
        let mut plain = ReplayClient::new(channel(&cluster.shard_address));
        let stranger = cluster.folder.path().join("stranger");
        fs::create_dir(&stranger).unwrap();
        fs::copy(cluster.secrets("actor").join("ca.pem"), stranger.join("ca.pem")).unwrap();
        let without = Credentials::load(Some(&stranger)).unwrap();
        fs::write(stranger.join("token"), "f".repeat(64)).unwrap();
        let wrong = Credentials::load(Some(&stranger)).unwrap();
        for _ in 0..20 {
            let update = v1::UpdatePrioritiesRequest::default();
            let denied = patiently(as_actor.update_priorities(update)).await.unwrap_err();
            assert_eq!(denied.code(), Code::PermissionDenied);
            for stranger in [&without, &wrong] {
                let mut client = ReplayClient::new(stranger.channel(Role::Replay, &cluster.shard_address));
                let denied = patiently(client.info(v1::InfoRequest {})).await.unwrap_err();
                assert_eq!(denied.code(), Code::Unauthenticated);
                let mut client =
                    LearnerClient::new(stranger.channel(Role::Learner, &cluster.learner_address));
                let denied = patiently(client.join(v1::JoinRequest::default())).await.unwrap_err();
                assert_eq!(denied.code(), Code::Unauthenticated);
            }
            assert!(patiently(plain.info(v1::InfoRequest {})).await.is_err());
        }
    });
    cluster.trains_on();
    let log = cluster.shard.log();
    for once in ["may not call this", "neither a token nor", "unknown token", "TLS handshake failed"] {
        assert_eq!(log.matches(once).count(), 1, "{once} in {log}");
    }
    assert_eq!(cluster.learner.log().matches("unknown token").count(), 1);
    assert!(cluster.shard.metric("quiver_rpc_requests_refused_total{reason=\"wrong_token\"}") >= 20.0);
    let token = fs::read_to_string(cluster.secrets("actor").join("token")).unwrap();
    for process in [&cluster.shard, &cluster.learner, &cluster.actor] {
        assert!(!process.log().contains(&token), "a token is in a log");
    }
}

#[test]
fn an_actor_without_the_right_secrets_ends_and_says_why_or_waits_and_says_for_what() {
    let _turn = turn();
    let mut cluster = Secured::start(&["--mutual"]);
    cluster.trains_on();
    let learner = cluster.learner_address.authority().unwrap().to_owned();
    let start = |name: &str, secrets: Option<PathBuf>| {
        let mut arguments = vec!["--learner".to_owned(), learner.clone()];
        arguments
            .extend(secrets.iter().flat_map(|secrets| ["--secrets".into(), secrets.display().to_string()]));
        Process::start(cluster.folder.path(), name, "quiver-actor", &arguments)
    };
    let mut admin = start("admin", Some(cluster.secrets("admin")));
    assert!(!admin.end().success());
    assert!(admin.log().contains("admin may not call Join"), "{}", admin.log());
    let plain = start("plain", None);
    until("it says what it waits for", || plain.log().contains("add --secrets"));
    // The cluster's own come back after a kill as always.
    cluster.learner.kill();
    let at = |name: &str| cluster.folder.path().join(name).display().to_string();
    let words = ["--config", &at("config.toml"), "--run-dir", &at("run"), "--listen", &learner, "--secrets"];
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    words.extend([
        at("secrets/learner"),
        "--shard".into(),
        cluster.shard_address.authority().unwrap().into(),
    ]);
    cluster.learner = Process::start(cluster.folder.path(), "learner", "quiver-learner", &words);
    cluster.trains_on();
    assert!(cluster.actor.ended().is_none());
}

#[test]
fn an_evaluator_needs_secrets_of_its_own() {
    let _turn = turn();
    let cluster = Secured::start(&[]);
    cluster.trains_on();
    let learner = cluster.learner_address.authority().unwrap().to_owned();
    let start = |name: &str, secrets: &str, flags: &[&str]| {
        let secrets = cluster.secrets(secrets).display().to_string();
        let words = [&["--learner", &learner, "--secrets", &secrets], flags].concat();
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        Process::start(cluster.folder.path(), name, "quiver-actor", &words)
    };
    let mut wrong = start("wrong", "actor", &["--evaluate"]);
    assert!(!wrong.end().success());
    assert!(wrong.log().contains("use --secrets of the role evaluator"), "{}", wrong.log());
    let mut wrong = start("wrong-too", "evaluator", &[]);
    assert!(!wrong.end().success());
    assert!(wrong.log().contains("use --secrets of the role actor"), "{}", wrong.log());
    let _right = start("evaluator", "evaluator", &["--evaluate"]);
    until("the evaluator is there", || {
        cluster.learner.metric("quiver_learner_members{role=\"evaluator\"}") == 1.0
    });
}
