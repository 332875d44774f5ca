//! Updates per second of the learner against bare libtorch: the same network, loss and Adam written with tch alone.

use std::time::Instant;

use learner::{Learner, setup};
use nn::Batch;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use run::Settings;
use run::choices::Network;
use tch::nn::{Module, OptimizerConfig};
use tch::{Device, Kind, Tensor};

const ACTIONS: i64 = 6;
const BATCH: i64 = 32;

/// Prints one line per network.
pub fn run() {
    for (network, hidden) in [(Network::Small, 256), (Network::Nature, 512)] {
        let mut settings = Settings::paper();
        settings.network = network;
        settings.hidden_units = hidden as usize;
        let ours = ours(&settings);
        let bare = bare(network, hidden);
        println!(
            "{network} updates/s of {BATCH}: ours {ours:.1}, bare libtorch {bare:.1}, ratio {:.2}",
            ours / bare
        );
    }
}

fn pictures() -> Tensor {
    Tensor::randint(256, [BATCH, 4, 84, 84], (Kind::Uint8, Device::Cpu))
}

/// Best of three stretches, in calls per second.
fn per_second(mut call: impl FnMut()) -> f64 {
    call();
    let mut best: f64 = 0.0;
    for _ in 0..3 {
        let start = Instant::now();
        let mut calls = 0;
        while start.elapsed().as_secs_f64() < 1.5 {
            call();
            calls += 1;
        }
        best = best.max(f64::from(calls) / start.elapsed().as_secs_f64());
    }
    best
}

fn ours(settings: &Settings) -> f64 {
    let spec = envs::Spec {
        game: "pong".into(),
        actions: (0..ACTIONS).map(|action| action.to_string()).collect(),
        observation: envs::Observation { element: envs::Element::U8, shape: vec![84, 84] },
        frames_per_step: 4,
    };
    let architecture = setup::architecture(settings, &spec);
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let mut learner = Learner::new(settings, architecture, Device::Cpu, &mut rng).expect("the network fits");
    let batch = Batch {
        states: pictures(),
        actions: Tensor::randint(ACTIONS, [BATCH], (Kind::Int64, Device::Cpu)),
        returns: Tensor::zeros([BATCH], (Kind::Double, Device::Cpu)),
        discounts: Tensor::full([BATCH], 0.99, (Kind::Double, Device::Cpu)),
        next_states: pictures(),
        weights: Some(Tensor::ones([BATCH], (Kind::Double, Device::Cpu))),
    };
    per_second(|| {
        learner.update(&batch, 0.0).expect("the loss is finite");
    })
}

fn bare(network: Network, hidden: i64) -> f64 {
    let store = tch::nn::VarStore::new(Device::Cpu);
    let target_store = tch::nn::VarStore::new(Device::Cpu);
    let online = bare_network(&store.root(), network, hidden);
    let target = bare_network(&target_store.root(), network, hidden);
    let mut adam = tch::nn::Adam::default().build(&store, 1e-4).expect("Adam");
    let (states, next_states) = (pictures(), pictures());
    let actions = Tensor::randint(ACTIONS, [BATCH, 1], (Kind::Int64, Device::Cpu));
    per_second(|| {
        let targets = tch::no_grad(|| {
            (target.forward(&(next_states.to_kind(Kind::Float) / 255.0)) / 0.05).logsumexp([1], false)
                * 0.05
                * 0.99
        });
        let q =
            online.forward(&(states.to_kind(Kind::Float) / 255.0)).gather(1, &actions, false).squeeze_dim(1);
        adam.backward_step(&q.huber_loss(&targets, tch::Reduction::Mean, 1.0));
    })
}

fn bare_network(root: &tch::nn::Path<'_>, network: Network, hidden: i64) -> tch::nn::Sequential {
    let conv = |from, to, kernel, stride| {
        let config = tch::nn::ConvConfig { stride, ..Default::default() };
        tch::nn::conv2d(root, from, to, kernel, config)
    };
    let linear = |from, to| tch::nn::linear(root, from, to, Default::default());
    let layers = match network {
        Network::Nature => tch::nn::seq()
            .add(conv(4, 32, 8, 4))
            .add_fn(Tensor::relu)
            .add(conv(32, 64, 4, 2))
            .add_fn(Tensor::relu)
            .add(conv(64, 64, 3, 1))
            .add_fn(|x| x.relu().flatten(1, -1))
            .add(linear(3136, hidden)),
        _ => tch::nn::seq()
            .add(conv(4, 16, 8, 4))
            .add_fn(Tensor::relu)
            .add(conv(16, 32, 4, 2))
            .add_fn(|x| x.relu().flatten(1, -1))
            .add(linear(2592, hidden)),
    };
    layers.add_fn(Tensor::relu).add(linear(hidden, ACTIONS))
}
