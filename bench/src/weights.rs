//! What a published version of the weights costs the training thread, and each actor that loads it.

use std::cell::RefCell;
use std::hint::black_box;

use agents::{Architecture, Head, QNetwork};
use anyhow::Result;
use learner::publishing::Publisher;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use replay::WeightsVersion;
use safetensors::SafeTensors;
use settings::Settings;
use settings::choices::Precision;
use settings::networks::{self, Network, NetworkInput};
use tch::Device;

use crate::measure::{Side, cpu_seconds, interleaved, quantile};
use crate::section::{Row, Section};

/// Other memory that goes through the caches: more than they hold.
const OTHER_BYTES: usize = 128 << 20;

/// Measures all networks.
pub fn section(seconds: f64) -> Result<Section> {
    let networks = [(networks::SMALL, 256), (networks::NATURE, 512)];
    let rows: Result<_> =
        networks.into_iter().map(|(network, hidden)| measure(network, hidden, seconds)).collect();
    Ok(Section {
        topic: "weights",
        title: "ms of CPU time per version; in the caches, and publish cold with other memory in them"
            .to_owned(),
        columns: &["MB", "publish", "publish cold", "new file", "load", "load by name", "plain copy"],
        rows: rows?,
    })
}

fn measure(network: Network, hidden: i64, seconds: f64) -> Result<Row> {
    let input = NetworkInput::Image { channels: 4, height: 84, width: 84 };
    let head = Head { actions: 6, outputs_per_action: 1, dueling: false };
    let architecture = Architecture { input, network, hidden, head, precision: Precision::F32 };
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let learner = QNetwork::random(architecture, Device::Cpu, &mut rng)?;
    let mut actor = QNetwork::random(architecture, Device::Cpu, &mut rng)?;
    let file = learner.parameters().to_safetensors();
    let sorted = sorted_by_name(&file)?;
    let mut copy = file.clone();
    let publisher = RefCell::new(Publisher::new(&Settings::paper()));
    let publish = |number| {
        let version = WeightsVersion { incarnation: 1, number };
        black_box(publisher.borrow_mut().weights(version, learner.parameters()));
    };
    let mut numbers = 0..;
    let load = |actor: &mut QNetwork, file: &[u8]| actor.load(file).expect("weights of the same network");
    let mut sides: Vec<Side<'_, QNetwork>> = vec![
        Box::new(|_| publish(numbers.next().unwrap_or_default())),
        Box::new(|_| drop(black_box(learner.parameters().to_safetensors()))),
        Box::new(|actor| load(actor, &file)),
        Box::new(|actor| load(actor, &sorted)),
        Box::new(|_| black_box(&mut copy).copy_from_slice(black_box(&file))),
    ];
    let rates = interleaved(seconds, &mut actor, &mut sides);
    drop(sides);
    let mut milliseconds: Vec<f64> = rates.iter().map(|rates| 1e3 / rates.median()).collect();
    milliseconds.insert(1, cold(seconds, || publish(numbers.next().unwrap_or_default())));
    let cells = [file.len() as f64 / 1e6].into_iter().chain(milliseconds).map(Some).collect();
    Ok(Row { name: network.to_string(), cells })
}

/// Median milliseconds of CPU time of a call between which other memory goes through the caches, as an update's does.
fn cold(seconds: f64, mut call: impl FnMut()) -> f64 {
    let mut other = vec![1u8; OTHER_BYTES];
    let (begin, mut spent) = (cpu_seconds(), Vec::new());
    while spent.is_empty() || cpu_seconds() - begin < seconds {
        black_box(&mut other).iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        let start = cpu_seconds();
        call();
        spent.push((cpu_seconds() - start) * 1e3);
    }
    spent.sort_by(f64::total_cmp);
    quantile(&spent, 0.5)
}

/// The same tensors as other programs and older versions order them, so that each is found by its name.
fn sorted_by_name(file: &[u8]) -> Result<Vec<u8>> {
    Ok(safetensors::serialize(SafeTensors::deserialize(file)?.tensors(), None)?)
}
