//! Which settings may change when a run is resumed: its end, its device, its processes, its evaluations and
//! checkpoints. Settings that change what is learned stay. One exception: another end moves the learning-rate schedule
//! if `learning_rate_decay` is below 1.
//!
//! `quiver train --resume` and a learner that is started by hand apply the same rule.

use crate::{SETTINGS, Settings};

/// Settings that may change on resume.
const FREE: [&str; 14] = [
    "frames",
    "device",
    "torch_threads",
    "actors",
    "publish_every_updates",
    "publish_every_seconds",
    "prefetch_batches",
    "checkpoint_every_frames",
    "checkpoints_kept",
    "evaluate_every_frames",
    "evaluate_episodes",
    "evaluate_final_episodes",
    "evaluation_policy",
    "baselines",
];

/// Settings that may also change in a cluster, because its actors start new games on resume. In lockstep they are part
/// of the sequence that is repeated bit for bit.
const FREE_IN_CLUSTER: [&str; 3] = ["lanes", "chunk_steps", "without_shards"];

/// A setting that a resumed run must not change, with its value in the run and the requested one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} from {was} to {is}")]
pub struct ForbiddenChange {
    pub key: &'static str,
    pub was: String,
    pub is: String,
}

/// The settings that differ from those of the run and must not.
pub fn forbidden_changes(run: &Settings, requested: &Settings) -> Vec<ForbiddenChange> {
    let is_free = |key: &&str| FREE.contains(key) || (!run.lockstep && FREE_IN_CLUSTER.contains(key));
    let keys = SETTINGS.iter().map(|setting| setting.key).filter(|key| !is_free(key));
    let change = |key: &'static str| {
        let (was, is) = (run.get(key)?, requested.get(key)?);
        (was != is).then_some(ForbiddenChange { key, was, is })
    };
    keys.filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_free_setting_exists() {
        let known = |key: &&str| SETTINGS.iter().any(|setting| setting.key == *key);
        assert!(FREE.iter().chain(&FREE_IN_CLUSTER).all(known));
    }

    #[test]
    fn only_settings_that_change_what_is_learned_are_forbidden() {
        let (run, mut requested) = (Settings::paper(), Settings::paper());
        for (key, text) in [("frames", "80M"), ("lanes", "5"), ("seed", "3"), ("temperature", "0.1")] {
            requested.set(key, text).unwrap().unwrap();
        }
        let forbidden: Vec<String> =
            forbidden_changes(&run, &requested).iter().map(ToString::to_string).collect();
        assert_eq!(forbidden, ["seed from 0 to 3", "temperature from 0.05 to 0.1"]);
    }
}
