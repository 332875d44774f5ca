//! The target network as the threads that prepare batches see it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agents::{Agent, Ahead, Device, QNetwork, TensorBatch};

/// The target network for threads that prepare batches: they compute its values ahead of the update.
#[derive(Clone, Debug)]
pub struct SharedTarget {
    agent: Arc<dyn Agent>,
    /// The network, and how many there were before it.
    newest: Arc<Mutex<(u64, QNetwork)>>,
}

impl SharedTarget {
    pub(crate) fn new(agent: Arc<dyn Agent>, target: &QNetwork) -> Self {
        Self { agent, newest: Arc::new(Mutex::new((0, target.share()))) }
    }

    pub(crate) fn version(&self) -> u64 {
        self.newest().0
    }

    fn newest(&self) -> MutexGuard<'_, (u64, QNetwork)> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over a new target network.
    pub(crate) fn replace(&self, target: &QNetwork) {
        let mut newest = self.newest();
        *newest = (newest.0 + 1, target.share());
    }

    /// Adds what the newest target network says of a batch to it. On a GPU this would only queue the same work earlier, so it does
    /// nothing there.
    pub fn value_ahead(&self, batch: &mut TensorBatch) {
        let (version, target) = {
            let newest = self.newest();
            (newest.0, newest.1.share())
        };
        if target.device() == Device::Cpu {
            batch.ahead = Some(Ahead { version, values: self.agent.target_values(&target, batch) });
        }
    }
}
