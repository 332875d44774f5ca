//! The processes of a cluster and their command lines.

use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use settings::Settings;

use super::restart::ChildRole;
use super::sockets::Sockets;
use crate::programs;

/// How one child is started.
#[derive(Debug)]
pub struct Plan {
    /// Name in logs and messages: `shard-0`, `learner`, `actor-1`, `evaluator`.
    pub name: String,
    pub role: ChildRole,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub variables: Vec<(&'static str, String)>,
}

/// The programs of a cluster, located before anything is started or written.
#[derive(Debug)]
pub struct Programs {
    shard: PathBuf,
    learner: PathBuf,
    actor: PathBuf,
}

impl Programs {
    pub fn find() -> anyhow::Result<Self> {
        Ok(Self {
            shard: programs::find(programs::REPLAY_SERVER)?,
            learner: programs::find(programs::LEARNER)?,
            actor: programs::find(programs::ACTOR)?,
        })
    }
}

const LEARNER: &str = "learner";

fn shard(index: u32) -> String {
    format!("shard-{index}")
}

/// Names of all sockets of a cluster.
pub fn socket_names(settings: &Settings) -> Vec<String> {
    (0..settings.shards).map(shard).chain([LEARNER.into()]).collect()
}

/// All children. Each exits when its stdin closes (`--exit-with-parent`). The live page is at `page`, or at a free port.
pub fn cluster(
    programs: &Programs,
    sockets: &Sockets,
    run: &Path,
    settings: &Settings,
    page: Option<SocketAddr>,
) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut add = |name: String, role, program: &PathBuf, arguments: Vec<OsString>, threads: usize| {
        let own = ["--exit-with-parent".into(), "--status-file".into(), sockets.status(&name).into()];
        let arguments = arguments.into_iter().chain(own).collect();
        plans.push(Plan { name, role, program: program.clone(), arguments, variables: threads_of(threads) });
    };
    let absent = |number: &u32| settings.without_shards.0.contains(&(*number as usize));
    for name in (0..settings.shards).filter(|number| !absent(number)).map(shard) {
        // Each shard has its own data directory, so that after a restart it recovers its own data.
        let data = run.join("replay").join(&name);
        let arguments = vec!["--listen".into(), sockets.address(&name), "--data-dir".into(), data.into()];
        add(name, ChildRole::Shard, &programs.shard, arguments, 1);
    }

    let mut arguments: Vec<OsString> = vec!["--config".into(), sockets.config().into()];
    arguments.extend(["--run-dir".into(), run.into()]);
    arguments.extend(["--listen".into(), sockets.address(LEARNER)]);
    arguments
        .extend((0..settings.shards).flat_map(|index| ["--shard".into(), sockets.address(&shard(index))]));
    // The launcher ends all children itself, so the learner need not serve after the end.
    arguments.extend(["--events", "--linger-seconds", "0"].map(OsString::from));
    arguments.extend(page.iter().flat_map(|page| ["--metrics-listen".into(), page.to_string().into()]));
    add(LEARNER.into(), ChildRole::Learner, &programs.learner, arguments, settings.torch_threads);

    let learner = || [OsString::from("--learner"), sockets.address(LEARNER)];
    for index in 0..settings.actors {
        let arguments = learner().into_iter().chain(["--index".into(), index.to_string().into()]).collect();
        add(format!("actor-{index}"), ChildRole::Player, &programs.actor, arguments, 1);
    }
    let arguments = [OsString::from("--evaluate")].into_iter().chain(learner()).collect();
    add("evaluator".into(), ChildRole::Player, &programs.actor, arguments, 1);
    plans
}

/// Sets OMP_NUM_THREADS unless the user did: by default each process would use all cores.
fn threads_of(count: usize) -> Vec<(&'static str, String)> {
    const VARIABLE: &str = "OMP_NUM_THREADS";
    if env::var_os(VARIABLE).is_some() { Vec::new() } else { vec![(VARIABLE, count.to_string())] }
}
