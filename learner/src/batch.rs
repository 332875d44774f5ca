//! Turns stored transitions into the tensors of one update.

use std::sync::Arc;

use agents::{Agent, InnerSteps, Returns, StateFormat, TensorBatch};
use replay::Taken;
use replay::codec::{DecodeError, Decoder};
use settings::Settings;
use tch::Tensor;

/// The inner steps of the transitions of a batch, padded to the same number for each.
struct InnerBuffers {
    /// Inner steps of a full window, n − 1.
    width: usize,
    states: Vec<u8>,
    actions: Vec<i64>,
    weights: Vec<f64>,
}

impl InnerBuffers {
    fn new(width: usize) -> Self {
        Self { width, states: Vec::new(), actions: Vec::new(), weights: Vec::new() }
    }

    /// Adds the inner steps of a window. `window` holds its frames; the state of step k begins with frame k.
    fn add(
        &mut self,
        returns: &Returns,
        window: &[u8],
        (frame_bytes, state_bytes): (usize, usize),
        steps: impl Iterator<Item = Taken>,
    ) {
        let end = self.actions.len() + self.width;
        for (index, step) in steps.enumerate().skip(1).take(self.width) {
            let start = index * frame_bytes;
            self.states.extend_from_slice(&window[start..start + state_bytes]);
            self.actions.push(step.action.into());
            self.weights.push(returns.weight(index));
        }
        // A window that ended early has fewer steps; a weight of 0 masks the others.
        self.actions.resize(end, 0);
        self.weights.resize(end, 0.0);
        self.states.resize(end * state_bytes, 0);
    }

    fn tensors(&self, format: &StateFormat) -> InnerSteps {
        let shaped = |tensor: Tensor| tensor.view([-1, self.width as i64]);
        InnerSteps {
            states: format.tensor(&self.states, self.actions.len()),
            actions: shaped(format.upload(&Tensor::from_slice(&self.actions))),
            weights: shaped(format.row(&self.weights)),
        }
    }

    fn clear(&mut self) {
        self.states.clear();
        self.actions.clear();
        self.weights.clear();
    }
}

/// Decodes transitions one by one into reused buffers, and turns them into the tensors of a batch.
pub struct TransitionDecoder {
    decoder: Decoder,
    agent: Arc<dyn Agent>,
    returns: Returns,
    frame_bytes: usize,
    stack: usize,
    window: Vec<u8>,
    states: Vec<u8>,
    next_states: Vec<u8>,
    actions: Vec<i64>,
    inner: Option<InnerBuffers>,
    sums: Vec<f64>,
    discounts: Vec<f64>,
    /// One per transition, or empty.
    reliabilities: Vec<f64>,
}

impl TransitionDecoder {
    /// A decoder for a run's transitions. A decoded frame has `frame_bytes` bytes.
    pub fn new(settings: &Settings, frame_bytes: usize) -> Self {
        let agent = agents::agent(settings);
        Self {
            decoder: Decoder::new(settings.frame_codec),
            inner: agent.uses_inner_steps().then(|| InnerBuffers::new(settings.n_step as usize - 1)),
            agent,
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

    /// Adds a transition: its distinct encoded frames, oldest first, each with whether it is a key frame, and its
    /// steps. The first `lead` frames are only needed to decode the others. After an error the batch is unchanged.
    pub fn add<'a>(
        &mut self,
        lead: usize,
        frames: impl Iterator<Item = (&'a [u8], bool)> + Clone,
        steps: impl Iterator<Item = Taken> + Clone,
    ) -> Result<(), DecodeError> {
        let (size, stack, length) = (self.frame_bytes, self.stack, steps.clone().count());
        // The window holds the frames of the first state and then one for each step, so that all states are slices of
        // it.
        self.window.resize((stack + length) * size, 0);
        self.decoder.decode_item(frames, lead, length, stack, size, &mut self.window)?;
        self.states.extend_from_slice(&self.window[..stack * size]);
        self.next_states.extend_from_slice(&self.window[length * size..]);
        if let Some(inner) = &mut self.inner {
            inner.add(&self.returns, &self.window, (size, stack * size), steps.clone());
        }
        let action = steps.clone().next().map_or(0, |step| step.action);
        let folded = self.returns.fold(&*self.agent, steps);
        self.actions.push(action.into());
        self.sums.push(folded.sum);
        self.discounts.push(folded.discount);
        Ok(())
    }

    /// Sets the reliability of the transition just added. Call it for every transition of a batch, or for none.
    pub fn set_reliability(&mut self, reliability: f64) {
        self.reliabilities.push(reliability);
    }

    /// Builds the batch of all transitions added since the last call, in the network's format.
    pub fn finish(&mut self, format: &StateFormat, weights: Option<&[f64]>) -> TensorBatch {
        let count = self.actions.len();
        let batch = TensorBatch {
            states: format.tensor(&self.states, count),
            actions: format.upload(&Tensor::from_slice(&self.actions)),
            returns: format.row(&self.sums),
            discounts: format.row(&self.discounts),
            next_states: format.tensor(&self.next_states, count),
            inner: self.inner.as_ref().map(|inner| inner.tensors(format)),
            weights: weights.map(|weights| format.row(weights)),
            reliabilities: (self.reliabilities.len() == count && count > 0)
                .then(|| self.reliabilities.clone()),
            ahead: None,
        };
        self.clear();
        batch
    }

    /// Drops all transitions added since the last batch.
    pub fn clear(&mut self) {
        self.states.clear();
        self.next_states.clear();
        self.inner.iter_mut().for_each(InnerBuffers::clear);
        self.actions.clear();
        self.sums.clear();
        self.discounts.clear();
        self.reliabilities.clear();
    }
}
