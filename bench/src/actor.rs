//! Frames per second of a whole actor on one core, by number of lanes, against its environments alone.
//!
//! An actor's step is one forward pass for all lanes, then in each lane a decision, a frame packed, an environment's
//! step and what completes a transition: its priority. Chunks are made and thrown away. Both sides play at random, so
//! that they meet the same kind of games; the actor computes its Q-values all the same, and needs them for priorities.

use std::hint::black_box;

use actor::Lanes;
use agents::{Architecture, QNetwork};
use anyhow::Result;
use envs::Environment;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use replay::WeightsVersion;
use settings::choices::{InitialPriority, Precision};
use settings::networks::{self, Network};
use settings::{Resolved, Settings};
use tch::Device;

use crate::measure::{Rates, Side, interleaved};
use crate::section::{Row, Section};

const GAME: &str = "pong";

/// Environments that share a forward pass.
const LANES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// The networks, each with its units in the hidden layer and the arithmetic of its matrices.
const NETWORKS: [(Network, usize, Precision); 4] = [
    (networks::SMALL, 256, Precision::F32),
    (networks::SMALL, 256, Precision::Bf16),
    (networks::NATURE, 512, Precision::F32),
    (networks::NATURE, 512, Precision::Bf16),
];

/// There are nine sides at each of six numbers of lanes: the share of a stretch that one gets.
const STRETCH_SHARE: f64 = 0.3;

/// Measures both networks at all numbers of lanes.
pub fn section(seconds: f64) -> Result<Section> {
    let mut of_network = NETWORKS.map(|_| Vec::new());
    for lanes in LANES {
        for (rows, row) in of_network.iter_mut().zip(measure(lanes, seconds * STRETCH_SHARE)?) {
            rows.push(row);
        }
    }
    Ok(Section {
        topic: "actor",
        title: format!(
            "emulator frames/s on one core with the network, {GAME}, by lanes; inference % of an actor's time"
        ),
        columns: &["actor", "actor median", "environment", "environment median", "ratio", "inference %"],
        rows: of_network.into_iter().flatten().collect(),
    })
}

/// What the sides of one comparison have done.
struct Tally {
    /// Frames and calls of each side that plays.
    played: [(u64, u64); NETWORKS.len() + 1],
    failed: Result<()>,
}

impl Tally {
    fn add(&mut self, side: usize, frames: u64) {
        self.played[side].0 += frames;
        self.played[side].1 += 1;
    }

    /// Calls per second as frames per second.
    fn frames(&self, side: usize, calls: Rates) -> Rates {
        let (frames, count) = self.played[side];
        Rates(calls.0.map(|rate| rate * frames as f64 / count as f64))
    }
}

/// A row of each network.
fn measure(lanes: u32, seconds: f64) -> Result<[Row; NETWORKS.len()]> {
    let settings = NETWORKS.map(|network| settings(network, lanes));
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut environments = environments(&settings[0], lanes)?;
    let spec = environments[0].spec().clone();
    let mut networks = Vec::new();
    for settings in &settings {
        let agent = agents::agent(settings);
        let architecture = Architecture::new(settings, &*agent, &spec)?;
        networks.push((agent, QNetwork::random(architecture, Device::Cpu, &mut rng)?));
    }
    let mut states = vec![0; lanes as usize * settings[0].frame_stack * spec.observation.bytes()];
    rng.fill_bytes(&mut states);

    let mut tally = Tally { played: Default::default(), failed: Ok(()) };
    let mut sides: Vec<Side<'_, Tally>> = Vec::new();
    for (side, (settings, (_, network))) in settings.iter().zip(&networks).enumerate() {
        let resolved = Resolved { game: GAME.into(), preset: String::new(), settings: settings.clone() };
        let mut player = Lanes::new(&resolved, 0, 0, 0, settings.chunk_steps as usize)?;
        let version = WeightsVersion { incarnation: 0, number: 0 };
        // No agent steps so far: the settings begin with random actions.
        sides.push(Box::new(move |tally| match player.step(network, version, 0, |_| true) {
            Ok(played) => tally.add(side, black_box(played).frames),
            Err(error) => tally.failed = Err(error.into()),
        }));
    }
    let actions = spec.actions.len();
    sides.push(Box::new(move |tally| {
        let step =
            |environment: &mut Box<dyn Environment>| play(environment.as_mut(), rng.random_range(0..actions));
        tally.add(NETWORKS.len(), environments.iter_mut().map(step).sum());
    }));
    for (agent, network) in &networks {
        let states = &states;
        sides.push(Box::new(move |_| drop(black_box(agent.q_rows(network, states, lanes as usize)))));
    }
    let calls = interleaved(seconds, &mut tally, &mut sides);
    drop(sides);
    std::mem::replace(&mut tally.failed, Ok(()))?;
    let environment = tally.frames(NETWORKS.len(), calls[NETWORKS.len()]);
    Ok(std::array::from_fn(|side| {
        let actor = tally.frames(side, calls[side]);
        let inference = calls[side].ratio(&calls[NETWORKS.len() + 1 + side]);
        let cells = [
            actor.best(),
            actor.median(),
            environment.best(),
            environment.median(),
            actor.ratio(&environment),
            100.0 * inference,
        ];
        let plural = if lanes == 1 { "" } else { "s" };
        let (network, _, precision) = NETWORKS[side];
        Row { name: format!("{network} {precision}, {lanes} lane{plural}"), cells: cells.map(Some).into() }
    }))
}

/// The paper's settings with another network.
fn settings((network, hidden, precision): (Network, usize, Precision), lanes: u32) -> Settings {
    let mut settings = Settings::paper();
    settings.network = network;
    settings.precision = precision;
    settings.hidden_units = hidden;
    settings.lanes = lanes;
    // The dearer of the two, and that of `quick`.
    settings.initial_priority = InitialPriority::Computed;
    settings
}

/// As many environments as an actor has.
fn environments(settings: &Settings, lanes: u32) -> Result<Vec<Box<dyn Environment>>> {
    let make = |lane: u32| Ok(envs::make(GAME, &settings.environment(), lane.into())?);
    (0..lanes).map(make).collect()
}

/// One step of one environment. Gives its frames.
fn play(environment: &mut dyn Environment, action: usize) -> u64 {
    let outcome = environment.step(action);
    if outcome.done() {
        environment.reset();
    }
    outcome.frames.into()
}
