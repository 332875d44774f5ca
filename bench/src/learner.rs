//! Updates per second of our learner against bare libtorch.

use agents::{StateFormat, TensorBatch};
use anyhow::Result;
use learner::Learner;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use settings::Settings;
use settings::networks;
use settings::units::Items;
use tch::{Device, Kind, Tensor};

use crate::bare::BareLearner;
use crate::measure::{Rates, Side, interleaved};
use crate::recording::{Recording, record};
use crate::section::{Row, Section};
use crate::whole::WholeUpdate;

/// The game whose frames fill the table of the whole update.
const GAME: &str = "pong";

/// Steps of it that are recorded; the table repeats them.
const FRAMES: usize = 2_000;

/// Transitions in that table: many times what the caches hold.
const CAPACITY: u64 = 100_000;

/// Batches that a side learns from in turn. With only one, errors would vanish and numbers become denormal.
pub const BATCHES: usize = 8;

pub fn section(seconds: f64) -> Result<Section> {
    let recording = record(GAME, FRAMES)?;
    let mut rows = Vec::new();
    for (network, hidden) in [(networks::SMALL, 256), (networks::NATURE, 512)] {
        let mut settings = Settings::paper();
        settings.network = network;
        settings.hidden_units = hidden;
        settings.capacity = Items(CAPACITY);
        rows.extend(measure(&settings, &recording, seconds)?);
    }
    Ok(Section {
        topic: "learner",
        title: format!(
            "updates/s of {}; outside % is the share of a whole update not spent learning",
            Settings::paper().batch_size
        ),
        columns: &["ours", "ours median", "bare libtorch", "bare median", "ratio", "outside %"],
        rows,
    })
}

/// Two rows of one network: the update alone on ready batches, and with all that a run does around it.
fn measure(settings: &Settings, recording: &Recording, seconds: f64) -> Result<[Row; 2]> {
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut alone = Learner::new(settings, &recording.spec, Device::Cpu, &mut rng)?;
    let mut within = Learner::new(settings, &recording.spec, Device::Cpu, &mut rng)?;
    let actions = recording.spec.actions.len() as i64;
    let mut bare = BareLearner::new(settings, actions)?;
    let mut whole = WholeUpdate::new(settings, recording, &within)?;
    let batches = batches(settings, actions, &alone.online().state_format());
    let plain = plain_batches(settings, actions);
    let (mut ours_next, mut bare_next) = (batches.iter().cycle(), plain.iter().cycle());
    let mut failed = Ok(());
    let mut sides: Vec<Side<'_, Result<()>>> = vec![
        Box::new(move |failed| {
            if let Some(Err(error)) = ours_next.next().map(|batch| alone.update(batch, 0.0)) {
                *failed = Err(error.into());
            }
        }),
        Box::new(move |_| bare_next.next().into_iter().for_each(|batch| bare.update(batch))),
        Box::new(|failed| {
            if let Err(error) = whole.update(&mut within) {
                *failed = Err(error);
            }
        }),
    ];
    let rates = interleaved(seconds, &mut failed, &mut sides);
    drop(sides);
    failed?;
    let row = |name: &str, ours: Rates, outside: Option<f64>| {
        let bare = rates[1];
        let cells = [ours.best(), ours.median(), bare.best(), bare.median(), ours.ratio(&bare)];
        let name = format!("{}, {name}", settings.network);
        Row { name, cells: cells.map(Some).into_iter().chain([outside]).collect() }
    };
    let outside = whole.percent_outside();
    Ok([row("update alone", rates[0], None), row("whole update", rates[2], Some(outside))])
}

/// Batches of noise as the learner gets them, in its network's format.
pub fn batches(settings: &Settings, actions: i64, format: &StateFormat) -> Vec<TensorBatch> {
    let size = settings.batch_size;
    noise(settings, actions, |bytes| format.tensor(bytes, size))
}

/// Batches of noise for a learner that knows nothing of formats: states are bytes, channel by channel.
pub fn plain_batches(settings: &Settings, actions: i64) -> Vec<TensorBatch> {
    let shape = [settings.batch_size as i64, 4, 84, 84];
    noise(settings, actions, |bytes| Tensor::from_data_size(bytes, &shape, Kind::Uint8))
}

fn noise(settings: &Settings, actions: i64, states: impl Fn(&[u8]) -> Tensor) -> Vec<TensorBatch> {
    let size = settings.batch_size as i64;
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut bytes = vec![0; settings.batch_size * 4 * 84 * 84];
    let mut states = || {
        rng.fill_bytes(&mut bytes);
        states(&bytes)
    };
    let batch = |_| TensorBatch {
        states: states(),
        actions: Tensor::randint(actions, [size], (Kind::Int64, Device::Cpu)),
        returns: Tensor::randn([size], (Kind::Float, Device::Cpu)),
        discounts: Tensor::full([size], 0.99, (Kind::Float, Device::Cpu)),
        next_states: states(),
        inner: None,
        weights: Some(Tensor::ones([size], (Kind::Float, Device::Cpu))),
        reliabilities: None,
        ahead: None,
    };
    (0..BATCHES).map(batch).collect()
}
