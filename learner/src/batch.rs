//! From stored transitions to the tensors of one update.

use std::sync::Arc;

use agents::{Agent, Batch, Returns, network};
use replay::Taken;
use replay::codec::{DecodeError, Decoder};
use settings::Settings;
use settings::networks::Input;
use tch::{Device, Tensor};

/// Unpacks transitions one by one into the memory of a batch, and makes the batch.
pub struct Assembler {
    decoder: Decoder,
    agent: Arc<dyn Agent>,
    returns: Returns,
    frame_bytes: usize,
    stack: usize,
    window: Vec<u8>,
    states: Vec<u8>,
    next_states: Vec<u8>,
    actions: Vec<i64>,
    sums: Vec<f64>,
    discounts: Vec<f64>,
    /// Of every transition, or of none.
    reliabilities: Vec<f64>,
}

impl Assembler {
    /// An assembler for a run's transitions, whose frames unpack to `frame_bytes`.
    pub fn new(settings: &Settings, frame_bytes: usize) -> Self {
        Self {
            decoder: Decoder::new(settings.frame_codec),
            agent: agents::agent(settings),
            returns: Returns::new(settings),
            frame_bytes,
            stack: settings.frame_stack,
            window: Vec::new(),
            states: Vec::new(),
            next_states: Vec::new(),
            actions: Vec::new(),
            sums: Vec::new(),
            discounts: Vec::new(),
            reliabilities: Vec::new(),
        }
    }

    /// Adds a transition: its distinct packed frames, oldest first, the first `lead` of them only there to unpack the
    /// others, whether each is a key frame, and what was done. On an error the batch is as before.
    pub fn add<'a>(
        &mut self,
        lead: usize,
        frames: impl Iterator<Item = (&'a [u8], bool)> + Clone,
        steps: impl Iterator<Item = Taken> + Clone,
    ) -> Result<(), DecodeError> {
        let (size, stack, length) = (self.frame_bytes, self.stack, steps.clone().count());
        self.window.resize((stack + length) * size, 0);
        self.decoder.decode_item(frames, lead, length, stack, size, &mut self.window)?;
        self.states.extend_from_slice(&self.window[..stack * size]);
        self.next_states.extend_from_slice(&self.window[length * size..]);
        let action = steps.clone().next().map_or(0, |step| step.action);
        let folded = self.returns.fold(&*self.agent, steps);
        self.actions.push(action.into());
        self.sums.push(folded.sum);
        self.discounts.push(folded.discount);
        Ok(())
    }

    /// Says how much of its episode's error is resolved behind the transition just added. Of all of a batch, or of none.
    pub fn rely(&mut self, reliability: f64) {
        self.reliabilities.push(reliability);
    }

    /// Transitions added since the last batch.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// The batch of everything added since the last call, as `input` on a device.
    pub fn finish(&mut self, input: &Input, device: Device, weights: Option<&[f64]>) -> Batch {
        let count = self.actions.len();
        let batch = Batch {
            states: network::states(input, &self.states, count, device),
            actions: Tensor::from_slice(&self.actions).to_device(device),
            returns: Tensor::from_slice(&self.sums).to_device(device),
            discounts: Tensor::from_slice(&self.discounts).to_device(device),
            next_states: network::states(input, &self.next_states, count, device),
            weights: weights.map(|weights| Tensor::from_slice(weights).to_device(device)),
            reliabilities: (self.reliabilities.len() == count && count > 0)
                .then(|| self.reliabilities.clone()),
        };
        self.clear();
        batch
    }

    /// Forgets everything added.
    pub fn clear(&mut self) {
        self.states.clear();
        self.next_states.clear();
        self.actions.clear();
        self.sums.clear();
        self.discounts.clear();
        self.reliabilities.clear();
    }
}
