//! Publishes weights: when, and in whose memory.
//!
//! The training thread pays one copy per version and nothing else: a file is complete as soon as the parameters are
//! copied behind its header, and all streams share its bytes. Files are written into the memory of former ones that no
//! stream sends any more, because fresh memory of several megabytes costs more page faults than the copy takes. A file
//! that a slow stream still sends keeps its memory, so a version never changes after it was published.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use agents::parameters::Parameters;
use bytes::Bytes;
use proto::Weights;
use replay::WeightsVersion;
use settings::Settings;

/// Files kept to be overwritten. While one version is published and one is in transit, the next is written.
const FREE_FILES_MAX: usize = 2;

/// Decides when weights are due, and makes their files.
#[derive(Debug)]
pub struct Publisher {
    /// Updates after which weights are due; 0 for never.
    every_updates: u64,
    /// Time after which newer weights are due; 0 for never.
    every: Duration,
    /// Updates and time of the last publication.
    last: Option<(u64, Instant)>,
    /// The newest file, for requests of the same version.
    newest: Option<Weights>,
    free: FreeFiles,
}

impl Publisher {
    pub fn new(settings: &Settings) -> Self {
        Self {
            every_updates: settings.publish_every_updates.0,
            every: Duration::from_secs_f64(settings.publish_every_seconds),
            last: None,
            newest: None,
            free: FreeFiles::default(),
        }
    }

    /// Whether the weights after so many updates should be published: they are newer than the published ones, and enough
    /// updates or enough time has passed since then.
    pub fn is_due(&self, updates: u64, now: Instant) -> bool {
        let Some((published, at)) = self.last else { return true };
        let by_updates = self.every_updates > 0 && updates >= published.saturating_add(self.every_updates);
        let by_time = !self.every.is_zero() && now.saturating_duration_since(at) >= self.every;
        updates > published && (by_updates || by_time)
    }

    /// Records a publication.
    pub fn published(&mut self, updates: u64, now: Instant) {
        self.last = Some((updates, now));
    }

    /// The weights of this version, which `parameters` holds. Costs one copy, or none if it is the newest version already.
    pub fn weights(&mut self, version: WeightsVersion, parameters: &Parameters) -> Weights {
        if let Some(newest) = self.newest.as_ref().filter(|newest| newest.version == version) {
            return newest.clone();
        }
        let safetensors = self.free.file(|file| parameters.write_safetensors(file));
        let weights = Weights { version, safetensors, evaluation: None };
        self.newest = Some(weights.clone());
        weights
    }
}

/// Files whose last reader is gone. Clones share them.
#[derive(Clone, Debug, Default)]
struct FreeFiles(Arc<Mutex<Vec<Vec<u8>>>>);

impl FreeFiles {
    /// A file in the memory of a former one, if there is one. Its memory comes back with its last clone.
    fn file(&self, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
        let former = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut bytes = former.unwrap_or_default();
        write(&mut bytes);
        Bytes::from_owner(File { bytes, free: self.clone() })
    }
}

/// The memory of a file, which becomes free when it is dropped.
struct File {
    bytes: Vec<u8>,
    free: FreeFiles,
}

impl AsRef<[u8]> for File {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let mut free = self.free.0.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < FREE_FILES_MAX {
            free.push(mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests need an instant to count from")]
mod tests {
    use super::*;
    use agents::{Architecture, Device, Head, QNetwork};
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use settings::choices::Precision;
    use settings::networks::{self, NetworkInput};

    fn publisher(every_updates: &str, every_seconds: &str) -> Publisher {
        let mut settings = Settings::paper();
        settings.set("publish_every_updates", every_updates).unwrap().unwrap();
        settings.set("publish_every_seconds", every_seconds).unwrap().unwrap();
        Publisher::new(&settings)
    }

    /// Updates at which weights are published, of 100 updates that take `seconds` each.
    fn published(mut publisher: Publisher, seconds: f64) -> Vec<u64> {
        let start = Instant::now();
        let mut published = Vec::new();
        for updates in 0..=100 {
            let now = start + Duration::from_secs_f64(seconds * updates as f64);
            if publisher.is_due(updates, now) {
                published.push(updates);
                publisher.published(updates, now);
                assert!(!publisher.is_due(updates, now + Duration::from_secs(9)), "nothing is newer");
            }
        }
        published
    }

    #[test]
    fn weights_are_published_by_updates_or_by_time_whichever_is_first() {
        assert_eq!(published(publisher("50", "1"), 0.001), [0, 50, 100]);
        assert_eq!(published(publisher("50", "1"), 0.25)[..4], [0, 4, 8, 12]);
        assert_eq!(published(publisher("50", "0"), 0.25), [0, 50, 100]);
        assert_eq!(published(publisher("0", "0.5"), 0.01), [0, 50, 100]);
        assert_eq!(published(publisher("0", "1"), 0.001), [0]);
        assert_eq!(published(publisher("1", "1"), 0.001).len(), 101);
    }

    #[test]
    fn a_slow_learner_publishes_its_last_update_although_no_other_follows() {
        let mut publisher = publisher("0", "1");
        let start = Instant::now();
        publisher.published(7, start);
        assert!(!publisher.is_due(8, start + Duration::from_millis(999)));
        assert!(publisher.is_due(8, start + Duration::from_secs(1)));
    }

    fn network(seed: u64) -> QNetwork {
        let head = Head { actions: 2, outputs_per_action: 1, dueling: false };
        let input = NetworkInput::Vector(4);
        let architecture =
            Architecture { input, network: networks::MLP, hidden: 8, head, precision: Precision::F32 };
        QNetwork::random(architecture, Device::Cpu, &mut ChaCha8Rng::seed_from_u64(seed)).unwrap()
    }

    #[test]
    fn a_published_version_keeps_its_bytes_while_later_ones_are_written() {
        let mut publisher = publisher("1", "0");
        let networks: Vec<_> = (0..9).map(network).collect();
        let mut weights = |number: usize| {
            let version = WeightsVersion { incarnation: 1, number: number as u64 };
            publisher.weights(version, networks[number].parameters())
        };
        let held: Vec<_> = (0..9).map(|number| weights(number).safetensors.slice(3..)).collect();
        for (network, bytes) in networks.iter().zip(&held) {
            assert_eq!(*bytes, network.parameters().to_safetensors()[3..]);
        }
    }

    #[test]
    fn the_memory_of_a_file_that_is_no_longer_read_is_used_again() {
        let mut publisher = publisher("1", "0");
        let mut memory = |number: u64| {
            let version = WeightsVersion { incarnation: 1, number };
            publisher.weights(version, network(number).parameters()).safetensors.as_ptr()
        };
        // The newest file is kept, so that two take turns.
        let first: Vec<_> = (0..6).map(&mut memory).collect();
        assert_eq!((first[0], first[1]), (first[2], first[3]));
        assert_eq!((first[2], first[3]), (first[4], first[5]));
        assert_eq!(memory(5), first[5], "the same version is not written again");
        assert!(publisher.free.0.lock().unwrap().len() <= FREE_FILES_MAX);
    }

    #[test]
    fn free_memory_is_bounded() {
        let free = FreeFiles::default();
        let files: Vec<_> = (0..5).map(|size| free.file(|file| file.resize(size + 1, 0))).collect();
        drop(files);
        assert_eq!(free.0.lock().unwrap().len(), FREE_FILES_MAX);
    }
}
