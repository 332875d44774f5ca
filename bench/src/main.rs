//! Side-by-side benchmarks: ours against the bare library underneath, in one run on one machine.
//!
//! One file per topic ([`environment`], [`actor`], [`learner`], [`weights`], [`replay`], [`growth`], [`codec`]; with processes of their
//! own [`service`], [`prefetch`], [`durability`], [`scale`], [`soak`], [`peers`] and [`cluster`]), each giving a
//! [`section::Section`] of the printed table. The learner's topic has a second one, [`pytorch`], and the cluster's has
//! [`end_to_end`]; [`hour`] is computed from the others. Read [`measure`] first: it says what a rate is here, and [`turns`]
//! what it is where a side uses two cores or another process.
#![forbid(unsafe_code)]

mod measure;
mod section;

mod actor;
mod environment;

mod bare;
mod learner;
mod pytorch;
mod turns;
mod whole;

mod weights;

mod replay;

mod codec;

mod durability;
mod growth;
mod peers;
mod prefetch;
mod scale;
mod service;
mod shard;
mod soak;

mod cluster;
mod end_to_end;
mod hour;

mod machine;
mod process;
mod python;
mod recording;
mod writer;

use std::ops::RangeInclusive;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use section::Section;

/// Measures Quiver against the bare libraries underneath and prints one table.
#[derive(Debug, Parser)]
#[command(name = "quiver-bench")]
struct Args {
    /// Measure only this.
    #[arg(long, value_enum)]
    only: Option<Topic>,
    /// Seconds per stretch; every side of a comparison gets three.
    #[arg(long, default_value = "1.0", value_parser = seconds)]
    seconds: f64,
    /// Measure torch.compile too, with `learner`: minutes more for compilation, which needs a C++ compiler.
    #[arg(long)]
    compile: bool,
    /// How long the soak takes.
    #[arg(long, default_value = "30", value_parser = minutes)]
    minutes: f64,
    /// Where the soak leaves its CSV file and its picture.
    #[arg(long, default_value = ".")]
    out: PathBuf,
    /// Print JSON and not a table.
    #[arg(long)]
    json: bool,
}

/// What can be measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    /// A whole little cluster, against the same training in one process, a plain PyTorch script and bare libtorch.
    Cluster,
    /// Frames per second of Atari against the bare emulator.
    Environment,
    /// Frames per second of an actor with its network, by number of lanes.
    Actor,
    /// Updates per second against bare libtorch and against PyTorch.
    Learner,
    /// Publishing and loading a version of the weights.
    Weights,
    /// Sum tree and replay table at a million items.
    Replay,
    /// Bytes and time of packed frames.
    Codec,
    /// Inserting into and sampling from a replay shard.
    Service,
    /// Batches per second of a learner's prefetcher.
    Prefetch,
    /// A shard that is killed, saved and synced.
    Durability,
    /// What a call costs as the replay grows.
    Growth,
    /// Several hundred actors against two shards, until these do not keep up. Not part of the whole.
    Scale,
    /// A shard under full load for half an hour. Not part of the whole.
    Soak,
    /// A shard against dm-reverb, the sum tree against cpprb and torchrl. Not part of the whole: it installs 7 GB.
    Peers,
    /// What 40M frames in one hour take, from environment, actor, learner, weights, service and prefetch, which it measures.
    Hour,
}

/// What [`Topic::Hour`] is computed from.
const HOUR: [Topic; 6] =
    [Topic::Environment, Topic::Actor, Topic::Learner, Topic::Weights, Topic::Service, Topic::Prefetch];

impl Topic {
    /// Its sections. `measured` are those of the topics before it.
    fn measure(self, args: &Args, measured: &[Section]) -> Result<Vec<Section>> {
        let seconds = args.seconds;
        if self != Topic::Cluster {
            // As our processes do. It holds for the rest of this process, bare libtorch included, so the cluster comes first: there
            // bare libtorch runs as people run it.
            agents::keep_freed_memory();
        }
        let section = match self {
            Topic::Environment => environment::section(seconds),
            Topic::Actor => actor::section(seconds),
            Topic::Learner => {
                return Ok(vec![learner::section(seconds)?, pytorch::section(seconds, args.compile)?]);
            }
            Topic::Weights => weights::section(seconds),
            Topic::Replay => replay::section(seconds),
            Topic::Codec => codec::section(seconds),
            Topic::Service => service::section(seconds),
            Topic::Prefetch => prefetch::section(seconds),
            Topic::Durability => durability::section(seconds),
            Topic::Growth => growth::section(seconds),
            Topic::Scale => scale::section(seconds),
            Topic::Soak => soak::section(args.minutes, &args.out),
            Topic::Peers => peers::section(seconds),
            Topic::Cluster => {
                return Ok(vec![cluster::section(seconds)?, end_to_end::section(seconds)?]);
            }
            Topic::Hour => hour::section(measured),
        };
        Ok(vec![section?])
    }
}

fn main() {
    if let Err(error) = run(&Args::parse()) {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}

/// Runs the requested benchmarks, and prints each section when it is complete.
fn run(args: &Args) -> Result<()> {
    // As a run does by default, and so that a core of ours is compared with a core of libtorch.
    tch::set_num_threads(1);
    let machine = machine::facts();
    if !args.json {
        machine.iter().for_each(|(name, fact)| println!("{name}: {fact}"));
        println!("{}\n", measure::legend());
    }
    let mut measured = Vec::new();
    let wanted = |topic: &&Topic| {
        args.only.map_or(!matches!(topic, Topic::Peers | Topic::Scale | Topic::Soak), |only| {
            only == **topic || (only == Topic::Hour && HOUR.contains(topic))
        })
    };
    for topic in Topic::value_variants().iter().filter(wanted) {
        for section in topic.measure(args, &measured)? {
            if !args.json {
                println!("{section}");
            }
            measured.push(section);
        }
    }
    if args.json {
        println!("{}", section::json(&machine, &measured));
    }
    Ok(())
}

/// The length of a stretch. Bounded, so that a slip of the finger does not take an hour.
fn seconds(text: &str) -> Result<f64, String> {
    within(text, 0.01..=60.0)
}

/// The length of a soak.
fn minutes(text: &str) -> Result<f64, String> {
    within(text, 0.1..=1440.0)
}

fn within(text: &str, range: RangeInclusive<f64>) -> Result<f64, String> {
    let number = text.parse().map_err(|_| format!("expected a number, got '{text}'"))?;
    let refused = || format!("expected {} to {}, got {text}", range.start(), range.end());
    range.contains(&number).then_some(number).ok_or_else(refused)
}
