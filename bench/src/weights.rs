//! What a published version of the weights costs the training thread, and each actor that loads it.

use std::hint::black_box;

use agents::{Architecture, Head, QNetwork};
use anyhow::Result;
use learner::publishing::Publisher;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::WeightsVersion;
use safetensors::SafeTensors;
use settings::Settings;
use settings::networks::{self, Network, NetworkInput};
use tch::Device;

use crate::measure::{Side, interleaved};
use crate::section::{Row, Section};

/// Measures all networks.
pub fn section(seconds: f64) -> Result<Section> {
    let networks = [(networks::SMALL, 256), (networks::NATURE, 512)];
    let rows: Result<_> =
        networks.into_iter().map(|(network, hidden)| measure(network, hidden, seconds)).collect();
    Ok(Section {
        topic: "weights",
        title: "ms of CPU time per version; its memory is in the caches if these are large enough".to_owned(),
        columns: &["MB", "publish", "new file", "load", "load by name", "plain copy"],
        rows: rows?,
    })
}

fn measure(network: Network, hidden: i64, seconds: f64) -> Result<Row> {
    let input = NetworkInput::Image { channels: 4, height: 84, width: 84 };
    let head = Head { actions: 6, outputs_per_action: 1, dueling: false };
    let architecture = Architecture { input, network, hidden, head };
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let learner = QNetwork::random(architecture, Device::Cpu, &mut rng)?;
    let mut actor = QNetwork::random(architecture, Device::Cpu, &mut rng)?;
    let file = learner.parameters().to_safetensors();
    let sorted = sorted_by_name(&file)?;
    let mut copy = file.clone();
    let (mut publisher, mut number) = (Publisher::new(&Settings::paper()), 0);
    let load = |actor: &mut QNetwork, file: &[u8]| actor.load(file).expect("weights of the same network");
    let mut sides: Vec<Side<'_, QNetwork>> = vec![
        Box::new(|_| {
            number += 1;
            let version = WeightsVersion { incarnation: 1, number };
            black_box(publisher.weights(version, learner.parameters()));
        }),
        Box::new(|_| drop(black_box(learner.parameters().to_safetensors()))),
        Box::new(|actor| load(actor, &file)),
        Box::new(|actor| load(actor, &sorted)),
        Box::new(|_| black_box(&mut copy).copy_from_slice(black_box(&file))),
    ];
    let rates = interleaved(seconds, &mut actor, &mut sides);
    drop(sides);
    let milliseconds = rates.iter().map(|rates| Some(1e3 / rates.median()));
    let cells = [Some(file.len() as f64 / 1e6)].into_iter().chain(milliseconds).collect();
    Ok(Row { name: network.to_string(), cells })
}

/// The same tensors as other programs and older versions order them, so that each is found by its name.
fn sorted_by_name(file: &[u8]) -> Result<Vec<u8>> {
    Ok(safetensors::serialize(SafeTensors::deserialize(file)?.tensors(), None)?)
}
