//! Side-by-side benchmarks: ours against the bare library underneath, in one run on one machine.
//!
//! One file per topic ([`environment`], [`actor`], [`learner`], [`replay`], [`growth`], [`codec`]; with processes of their
//! own [`service`], [`durability`], [`peers`] and [`cluster`]), each giving a [`section::Section`] of the printed table. Read [`measure`] first: it says
//! what a rate is here.
#![forbid(unsafe_code)]

mod measure;
mod section;

mod actor;
mod environment;

mod bare;
mod learner;
mod whole;

mod replay;

mod codec;

mod durability;
mod growth;
mod peers;
mod service;
mod shard;

mod cluster;

mod machine;
mod process;
mod recording;
mod writer;

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
    /// Print JSON and not a table.
    #[arg(long)]
    json: bool,
}

/// What can be measured on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Topic {
    /// Frames per second of Atari against the bare emulator.
    Environment,
    /// Frames per second of an actor with its network, by number of lanes.
    Actor,
    /// Updates per second against bare libtorch.
    Learner,
    /// Sum tree and replay table at a million items.
    Replay,
    /// Bytes and time of packed frames.
    Codec,
    /// Inserting into and sampling from a replay shard.
    Service,
    /// A shard that is killed, saved and synced.
    Durability,
    /// What a call costs as the replay grows.
    Growth,
    /// A shard against dm-reverb, the sum tree against cpprb and torchrl. Not part of the whole: it installs 7 GB.
    Peers,
    /// A whole little cluster, against the same training in one process.
    Cluster,
}

impl Topic {
    /// Measures it in stretches of so many seconds.
    fn measure(self, seconds: f64) -> Result<Section> {
        match self {
            Topic::Environment => environment::section(seconds),
            Topic::Actor => actor::section(seconds),
            Topic::Learner => learner::section(seconds),
            Topic::Replay => replay::section(seconds),
            Topic::Codec => codec::section(seconds),
            Topic::Service => service::section(seconds),
            Topic::Durability => durability::section(seconds),
            Topic::Growth => growth::section(seconds),
            Topic::Peers => peers::section(seconds),
            Topic::Cluster => cluster::section(seconds),
        }
    }
}

fn main() {
    if let Err(error) = run(&Args::parse()) {
        eprintln!("error: {error:#}");
        std::process::exit(1);
    }
}

/// Measures what is asked for, and prints each section as soon as it is there.
fn run(args: &Args) -> Result<()> {
    // As a run does by default, and so that a core of ours is compared with a core of libtorch.
    tch::set_num_threads(1);
    let machine = machine::facts();
    if !args.json {
        machine.iter().for_each(|(name, fact)| println!("{name}: {fact}"));
        println!("{}\n", measure::legend());
    }
    let mut measured = Vec::new();
    let wanted = |topic: &&Topic| args.only.map_or(**topic != Topic::Peers, |only| only == **topic);
    for topic in Topic::value_variants().iter().filter(wanted) {
        let section = topic.measure(args.seconds)?;
        if !args.json {
            println!("{section}");
        }
        measured.push(section);
    }
    if args.json {
        println!("{}", section::json(&machine, &measured));
    }
    Ok(())
}

/// The length of a stretch. Bounded, so that a slip of the finger does not take an hour.
fn seconds(text: &str) -> Result<f64, String> {
    const RANGE: std::ops::RangeInclusive<f64> = 0.01..=60.0;
    let seconds = text.parse().map_err(|_| format!("expected a number, got '{text}'"))?;
    let refused = || format!("expected {} to {}, got {text}", RANGE.start(), RANGE.end());
    RANGE.contains(&seconds).then_some(seconds).ok_or_else(refused)
}
