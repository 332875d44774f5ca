//! The same learning written with tch alone: libtorch's modules, loss and Adam, and nothing around them.
//!
//! It is a lower bound of what an update costs. It computes no priorities, weighs no transition, clamps no gradient,
//! reports no figure and never copies its target network.

use agents::TensorBatch;
use anyhow::Result;
use settings::Settings;
use tch::nn::{
    Adam, ConvConfig, Module, Optimizer, OptimizerConfig, Path, Sequential, VarStore, conv2d, linear, seq,
};
use tch::{Device, Kind, Reduction, Tensor, no_grad};

/// Frames of a state, and the side of each.
const CHANNELS: i64 = 4;
const SIDE: i64 = 84;

/// Soft DQN on bare libtorch.
pub struct BareLearner {
    online: Sequential,
    target: Sequential,
    adam: Optimizer,
    temperature: f64,
    /// Owners of the variables that the networks refer to.
    _stores: [VarStore; 2],
}

impl BareLearner {
    /// A learner of the settings' network and temperature.
    pub fn new(settings: &Settings, actions: i64) -> Result<Self> {
        let stores = [VarStore::new(Device::Cpu), VarStore::new(Device::Cpu)];
        let [online, target] = [0, 1].map(|index| network(&stores[index].root(), settings, actions));
        let adam = Adam::default().build(&stores[0], settings.learning_rate)?;
        Ok(Self { online, target, adam, temperature: settings.temperature, _stores: stores })
    }

    /// One gradient step: r + γ·β·logsumexp(Q′/β), Huber, Adam.
    pub fn update(&mut self, batch: &TensorBatch) {
        let pixels = |states: &Tensor| states.to_kind(Kind::Float) / 255.0;
        let targets = no_grad(|| {
            let next = self.target.forward(&pixels(&batch.next_states));
            let value = (next / self.temperature).logsumexp([1], false) * self.temperature;
            (&batch.returns + &batch.discounts * value).to_kind(Kind::Float)
        });
        let q = self.online.forward(&pixels(&batch.states));
        let taken = q.gather(1, &batch.actions.unsqueeze(1), false).squeeze_dim(1);
        self.adam.backward_step(&taken.huber_loss(&targets, Reduction::Mean, 1.0));
    }
}

/// The layers of the settings' network, for four frames of 84×84.
fn network(root: &Path<'_>, settings: &Settings, actions: i64) -> Sequential {
    let hidden = settings.hidden_units as i64;
    let conv = |from, to, kernel, stride| {
        conv2d(root, from, to, kernel, ConvConfig { stride, ..ConvConfig::default() })
    };
    let linear = |from, to| linear(root, from, to, tch::nn::LinearConfig::default());
    let (mut layers, mut channels, mut side) = (seq(), CHANNELS, SIDE);
    for layer in settings.network.convolutions {
        layers = layers.add(conv(channels, layer.channels, layer.kernel, layer.stride)).add_fn(Tensor::relu);
        channels = layer.channels;
        side = (side - layer.kernel) / layer.stride + 1;
    }
    let layers = layers.add_fn(|x| x.flatten(1, -1)).add(linear(channels * side * side, hidden));
    layers.add_fn(Tensor::relu).add(linear(hidden, actions))
}
