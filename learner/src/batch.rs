//! From stored transitions to the tensors of one update.

use nn::{Batch, QNetwork};
use replay::ItemView;
use replay::codec::{DecodeError, Decoder};
use run::returns::Returns;
use run::settings::Settings;
use tch::Tensor;

/// Unpacks transitions one by one into the memory of a batch, and makes the batch.
pub struct Assembler {
    decoder: Decoder,
    returns: Returns,
    frame_bytes: usize,
    window: Vec<u8>,
    states: Vec<u8>,
    next_states: Vec<u8>,
    actions: Vec<i64>,
    sums: Vec<f64>,
    discounts: Vec<f64>,
}

impl Assembler {
    /// An assembler for a run's transitions, whose frames unpack to `frame_bytes`.
    pub fn new(settings: &Settings, frame_bytes: usize) -> Self {
        Self {
            decoder: Decoder::new(settings.frame_codec),
            returns: Returns::new(settings),
            frame_bytes,
            window: Vec::new(),
            states: Vec::new(),
            next_states: Vec::new(),
            actions: Vec::new(),
            sums: Vec::new(),
            discounts: Vec::new(),
        }
    }

    /// Adds a transition; each of its frames is unpacked once. On an error the batch is as before.
    pub fn add(&mut self, item: &ItemView<'_>) -> Result<(), DecodeError> {
        let size = self.frame_bytes;
        let frames = item.frames();
        self.window.resize(frames.len() * size, 0);
        for (packed, frame) in frames.zip(self.window.chunks_exact_mut(size)) {
            self.decoder.decode_into(packed, frame)?;
        }
        let frame = |index: usize| &self.window[index * size..(index + 1) * size];
        item.state().for_each(|index| self.states.extend_from_slice(frame(index)));
        item.next_state().for_each(|index| self.next_states.extend_from_slice(frame(index)));
        let action = item.steps().next().map_or(0, |step| step.action);
        let folded = self.returns.fold(item.steps());
        self.actions.push(action.into());
        self.sums.push(folded.sum);
        self.discounts.push(folded.discount);
        Ok(())
    }

    /// The batch of everything added since the last call, on the network's device.
    pub fn finish(&mut self, network: &QNetwork, weights: Option<&[f64]>) -> Batch {
        let count = self.actions.len();
        let device = network.device();
        let batch = Batch {
            states: network.states(&self.states, count),
            actions: Tensor::from_slice(&self.actions).to_device(device),
            returns: Tensor::from_slice(&self.sums).to_device(device),
            discounts: Tensor::from_slice(&self.discounts).to_device(device),
            next_states: network.states(&self.next_states, count),
            weights: weights.map(|weights| Tensor::from_slice(weights).to_device(device)),
        };
        self.states.clear();
        self.next_states.clear();
        self.actions.clear();
        self.sums.clear();
        self.discounts.clear();
        batch
    }
}
