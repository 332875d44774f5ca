//! Updates per second of our learner against PyTorch: as people write it, and as fast as we could make it.
//!
//! Each side makes one update of soft DQN on ready batches: a forward pass of the target network, one of the online
//! network, Huber loss, gradient, Adam. Ours also computes priorities, importance weights and the figures of a run, and
//! copies its target network. A new way of ours to learn is a line in [`OURS`].

use std::cell::RefCell;
use std::path::Path;
use std::sync::mpsc;

use agents::TensorBatch;
use anyhow::{Context, Result};
use learner::Learner;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use settings::Settings;
use settings::choices::Precision;
use settings::networks::{self, Network};
use tch::{Device, Tensor};

use crate::learner::{BATCHES, batches};
use crate::python::{self, KEEP_MEMORY, Server, number};
use crate::section::{Row, Section};
use crate::turns::{Side, Spent, Timed, repeat, take_turns};

/// The networks, each with the units of its hidden layer.
pub const NETWORKS: [(Network, usize); 2] = [(networks::NATURE, 512), (networks::SMALL, 256)];

/// A game with as many actions as `torch_bench.py` has.
const GAME: &str = "pong";

const BATCH_SIZES: [usize; 2] = [32, 128];

/// A way of ours to learn.
struct Ours {
    name: &'static str,
    precision: Precision,
    /// Whether a second thread computes the target network's values ahead and a third helps with the gradient, as in a cluster.
    two_cores: bool,
}

const OURS: &[Ours] = &[
    Ours { name: "f32", precision: Precision::F32, two_cores: false },
    Ours { name: "f32, two cores", precision: Precision::F32, two_cores: true },
    Ours { name: "bf16", precision: Precision::Bf16, two_cores: false },
    Ours { name: "bf16, two cores", precision: Precision::Bf16, two_cores: true },
];

/// A way to learn in PyTorch.
struct Theirs {
    name: &'static str,
    /// As `torch_bench.py` calls it.
    variant: &'static str,
    threads: u32,
}

const THEIRS: &[Theirs] = &[
    Theirs { name: WRITTEN, variant: "written", threads: 1 },
    Theirs { name: WRITTEN_2, variant: "written", threads: 2 },
    Theirs { name: "as written, bf16", variant: "written-bf16", threads: 1 },
    Theirs { name: BEST, variant: "best", threads: 1 },
    Theirs { name: BEST_2, variant: "best", threads: 2 },
    Theirs { name: "compiled", variant: "compiled", threads: 1 },
    Theirs { name: "compiled best", variant: "compiled-best", threads: 1 },
    Theirs { name: "compiled best, 2 threads", variant: "compiled-best", threads: 2 },
];

const WRITTEN: &str = "as written";
const WRITTEN_2: &str = "as written, 2 threads";
const BEST: &str = "best";
const BEST_2: &str = "best, 2 threads";

impl Theirs {
    /// `torch.compile` takes about half a minute for each network, batch size and number of threads.
    fn is_compiled(&self) -> bool {
        self.variant.starts_with("compiled")
    }

    /// Whether it runs in the process whose allocator keeps memory.
    fn keeps_memory(&self) -> bool {
        self.variant.ends_with("best")
    }
}

/// The rows of PyTorch that all others are compared with, in the order of the columns.
const COMPARED: [&str; 4] = [WRITTEN, WRITTEN_2, BEST, BEST_2];

/// Measures all sides. With `compile` also what `torch.compile` makes of the update.
pub fn section(seconds: f64, compile: bool) -> Result<Section> {
    let servers = python::with_torch().map(|python| Servers::start(&python)).transpose()?;
    let mut rows = Vec::new();
    for network in NETWORKS {
        for size in BATCH_SIZES {
            rows.extend(measure(network, size, servers.as_ref(), seconds, compile)?);
        }
    }
    Ok(Section {
        topic: "pytorch",
        title: "updates/s of wall time on ready batches; ratios to PyTorch as written and at its best, on 1 and 2 \
                threads; CPU % is 100 for a core, CPU ratio is to PyTorch as written per second of CPU time"
            .to_owned(),
        columns: &["updates/s", "median", "CPU %", "/written", "/written 2", "/best", "/best 2", "CPU ratio"],
        rows,
    })
}

/// The rows of one network and batch size.
fn measure(
    network: (Network, usize),
    size: usize,
    servers: Option<&Servers>,
    seconds: f64,
    compile: bool,
) -> Result<Vec<Row>> {
    let (mut names, mut sides): (Vec<String>, Vec<Side<'_>>) = (Vec::new(), Vec::new());
    for way in OURS {
        names.push(format!("ours, {}", way.name));
        sides.push(ours(&settings(network, size, way.precision), way.two_cores)?);
    }
    if let Some(servers) = servers {
        for theirs in THEIRS.iter().filter(|theirs| compile || !theirs.is_compiled()) {
            names.push(their_name(theirs.name));
            sides.push(servers.side(theirs, network.0.name, size));
        }
    }
    let timed = take_turns(seconds, &mut sides)?;
    let compared = COMPARED.map(|name| {
        let index = names.iter().position(|other| *other == their_name(name));
        index.map(|index| timed[index])
    });
    let row = |(name, timed): (&String, &Timed)| {
        let ratios = compared.map(|other| other.map(|other| timed.wall.ratio(&other.wall)));
        let per_cpu = compared[0].map(|other| timed.cpu.ratio(&other.cpu));
        let own = [timed.wall.best(), timed.wall.median(), 100.0 * timed.cores()].map(Some);
        let cells = own.into_iter().chain(ratios).chain([per_cpu]).collect();
        Row { name: format!("{}, {size}, {name}", network.0), cells }
    };
    Ok(names.iter().zip(&timed).map(row).collect())
}

fn their_name(name: &str) -> String {
    format!("PyTorch, {name}")
}

/// The paper's settings for a network.
fn settings((network, hidden): (Network, usize), batch_size: usize, precision: Precision) -> Settings {
    // As many forward passes as on the other side.
    Settings { network, hidden_units: hidden, batch_size, precision, n_step: 1, ..Settings::paper() }
}

/// Our side: [`Learner::update`] on ready batches, whose target values may be computed ahead on a second thread.
fn ours(settings: &Settings, two_cores: bool) -> Result<Side<'static>> {
    let spec = envs::make(GAME, &settings.environment(), 0)?.spec().clone();
    let mut learner = Learner::new(settings, &spec, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(0))?;
    if two_cores {
        learner = learner.with_helper()?;
    }
    let actions = spec.actions.len() as i64;
    let batches = batches(settings, actions, &learner.online().state_format());
    let mut turn = 0;
    Ok(Box::new(move |seconds| {
        if two_cores {
            return learn_with_values_ahead(&mut learner, &batches, seconds);
        }
        repeat(seconds, || {
            learner.update(&batches[turn], 0.0)?;
            turn = (turn + 1) % BATCHES;
            Ok(())
        })
    }))
}

/// Batches whose values are computed ahead.
const AHEAD: usize = 2;

/// Updates for so many seconds. The second thread lives no longer than that, so all that it does is measured.
fn learn_with_values_ahead(learner: &mut Learner, batches: &[TensorBatch], seconds: f64) -> Result<Spent> {
    let target = learner.shared_target();
    let (send_used, used) = mpsc::channel::<TensorBatch>();
    let (send_ready, ready) = mpsc::sync_channel::<TensorBatch>(AHEAD);
    let mut newest = shallow(&batches[0]);
    for batch in &batches[1..] {
        let _ = send_used.send(shallow(batch));
    }
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for mut batch in used {
                target.value_ahead(&mut batch);
                if send_ready.send(batch).is_err() {
                    return;
                }
            }
        });
        let spent = repeat(seconds, || {
            learner.update(&newest, 0.0)?;
            let next = ready.recv().context("the second thread has ended")?;
            let _ = send_used.send(std::mem::replace(&mut newest, next));
            Ok(())
        });
        drop((send_used, ready));
        spent
    })
}

/// The same tensors.
fn shallow(batch: &TensorBatch) -> TensorBatch {
    TensorBatch {
        states: batch.states.shallow_clone(),
        actions: batch.actions.shallow_clone(),
        returns: batch.returns.shallow_clone(),
        discounts: batch.discounts.shallow_clone(),
        next_states: batch.next_states.shallow_clone(),
        inner: None,
        weights: batch.weights.as_ref().map(Tensor::shallow_clone),
        reliabilities: None,
        ahead: None,
    }
}

/// PyTorch in two processes, which differ in how their allocators are configured.
struct Servers {
    plain: RefCell<Server>,
    keeping_memory: RefCell<Server>,
}

impl Servers {
    fn start(python: &Path) -> Result<Self> {
        let start = |variables: &[_]| Server::start(python, "torch_bench.py", &[], variables);
        Ok(Self { plain: RefCell::new(start(&[])?), keeping_memory: RefCell::new(start(&KEEP_MEMORY)?) })
    }

    fn side(&self, theirs: &'static Theirs, network: &'static str, batch: usize) -> Side<'_> {
        let server = if theirs.keeps_memory() { &self.keeping_memory } else { &self.plain };
        Box::new(move |seconds| {
            let (variant, threads) = (theirs.variant, theirs.threads);
            let request = json!({
                "network": network, "batch": batch, "variant": variant, "threads": threads, "seconds": seconds,
            });
            let answer = server.borrow_mut().ask(&request)?;
            let [calls, wall, cpu] = ["calls", "wall", "cpu"].map(|key| number(&answer, key));
            Ok(Spent { calls: calls? as u64, wall: wall?, cpu: cpu? })
        })
    }
}
