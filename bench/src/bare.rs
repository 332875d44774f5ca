//! The same learning written with tch alone: libtorch's modules, loss and Adam, and nothing around them.
//!
//! It stands for the least that an update can cost. It computes no priorities, weighs no transition, clamps no
//! gradient, reports no figure and never copies its target network.

use anyhow::Result;
use nn::Batch;
use run::Settings;
use run::choices::Network;
use tch::nn::{
    Adam, ConvConfig, Module, Optimizer, OptimizerConfig, Path, Sequential, VarStore, conv2d, linear, seq,
};
use tch::{Device, Kind, Reduction, Tensor, no_grad};

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
    pub fn update(&mut self, batch: &Batch) {
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

/// The 2015 network or the 2013 one, for four frames of 84×84.
fn network(root: &Path<'_>, settings: &Settings, actions: i64) -> Sequential {
    let hidden = settings.hidden_units as i64;
    let conv = |from, to, kernel, stride| {
        conv2d(root, from, to, kernel, ConvConfig { stride, ..ConvConfig::default() })
    };
    let linear = |from, to| linear(root, from, to, tch::nn::LinearConfig::default());
    let layers = match settings.network {
        Network::Nature => seq()
            .add(conv(4, 32, 8, 4))
            .add_fn(Tensor::relu)
            .add(conv(32, 64, 4, 2))
            .add_fn(Tensor::relu)
            .add(conv(64, 64, 3, 1))
            .add_fn(|x| x.relu().flatten(1, -1))
            .add(linear(3136, hidden)),
        Network::Small => seq()
            .add(conv(4, 16, 8, 4))
            .add_fn(Tensor::relu)
            .add(conv(16, 32, 4, 2))
            .add_fn(|x| x.relu().flatten(1, -1))
            .add(linear(2592, hidden)),
        Network::Mlp => unreachable!("only networks for pictures are measured"),
    };
    layers.add_fn(Tensor::relu).add(linear(hidden, actions))
}
