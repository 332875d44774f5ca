//! Which settings may change when a run is resumed: its end, its device, its processes, its evaluations and checkpoints.
//! Settings that change what is learned stay. One exception: another end moves the learning-rate schedule if
//! `learning_rate_decay` is below 1.

use anyhow::bail;
use settings::resolve::{Layers, Resolved, flag, variable};

/// Settings that may change on resume.
const FREE: [&str; 13] = [
    "frames",
    "device",
    "torch_threads",
    "actors",
    "publish_every_updates",
    "prefetch_batches",
    "checkpoint_every_frames",
    "checkpoints_kept",
    "evaluate_every_frames",
    "evaluate_episodes",
    "evaluate_final_episodes",
    "evaluation_policy",
    "baselines",
];

/// Settings that may also change in a cluster, because its actors start new games on resume. In lockstep they are part of
/// the sequence that is repeated bit for bit.
const FREE_IN_CLUSTER: [&str; 3] = ["lanes", "chunk_steps", "without_shards"];

/// The settings of a resumed run: its own, overridden by variables and flags where that is allowed.
pub fn resolve(mut run: Resolved, game: Option<&str>, layers: &Layers) -> anyhow::Result<Resolved> {
    if let Some(game) = game {
        let game = envs::canonical(game)?;
        if game != run.game {
            bail!("the run plays {}, not {game}: leave the game out to resume the run", run.game);
        }
    }
    let variables = layers.environment.iter().map(|(key, text)| (variable(key), key, text));
    let flags = layers.flags.iter().map(|(key, text)| (flag(key), key, text));
    for (source, key, text) in variables.chain(flags) {
        change(&mut run, &source, key, text)?;
    }
    if let Err(error) = run.settings.validate(&run.game) {
        bail!(error);
    }
    Ok(run)
}

fn change(run: &mut Resolved, source: &str, key: &str, text: &str) -> anyhow::Result<()> {
    let was = run.settings.get(key);
    if let Some(Err(error)) = run.settings.set(key, text) {
        bail!("{source}: {error}");
    }
    let is = run.settings.get(key);
    let free = FREE.contains(&key) || (!run.settings.lockstep && FREE_IN_CLUSTER.contains(&key));
    if is != was && !free {
        let (was, is) = (was.unwrap_or_default(), is.unwrap_or_default());
        bail!(
            "{source} would change {key} from {was} to {is}, which a resumed run can't change: leave it out, or start a new run"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::SETTINGS;

    fn run() -> Resolved {
        Layers::default().resolve(Some("pong")).unwrap()
    }

    fn resumed(game: Option<&str>, key: &str, text: &str) -> Result<Resolved, String> {
        let layers = Layers { flags: vec![(key.into(), text.into())], ..Layers::default() };
        resolve(run(), game, &layers).map_err(|error| error.to_string())
    }

    #[test]
    fn a_resumed_run_can_have_more_frames() {
        assert_eq!(resumed(None, "frames", "80M").unwrap().settings.frames.0, 80_000_000);
        let known = |key: &&str| SETTINGS.iter().any(|setting| setting.key == *key);
        assert!(FREE.iter().chain(&FREE_IN_CLUSTER).all(known));
    }

    #[test]
    fn a_cluster_can_resume_with_other_actors_but_not_with_other_shards() {
        for key in ["actors", "lanes", "chunk_steps", "prefetch_batches"] {
            assert_eq!(resumed(None, key, "5").unwrap().settings.get(key).as_deref(), Some("5"));
        }
        assert!(resumed(None, "shards", "5").unwrap_err().contains("shards from 1 to 5"));
        assert!(resumed(None, "lockstep", "true").unwrap_err().contains("lockstep from false to true"));
    }

    #[test]
    fn the_lanes_of_a_lockstep_run_stay() {
        let mut run = run();
        run.settings.lockstep = true;
        let resumed = |key: &str| {
            let layers = Layers { flags: vec![(key.into(), "5".into())], ..Layers::default() };
            resolve(run.clone(), None, &layers).map_err(|error| error.to_string())
        };
        assert!(resumed("lanes").unwrap_err().contains("lanes from 1 to 5"));
        assert!(resumed("actors").is_ok(), "lockstep does not read this setting");
    }

    #[test]
    fn settings_that_change_what_is_learned_stay() {
        let error = resumed(None, "temperature", "0.1").unwrap_err();
        assert_eq!(
            error,
            "--temperature would change temperature from 0.05 to 0.1, which a resumed run can't change: \
             leave it out, or start a new run"
        );
        assert_eq!(
            resumed(None, "temperature", "0.050"),
            Ok(run()),
            "the same value in other words is no change"
        );
    }

    #[test]
    fn the_game_stays() {
        assert!(resumed(Some("Pong"), "frames", "40M").is_ok());
        assert!(resumed(Some("breakout"), "frames", "40M").unwrap_err().contains("plays pong"));
    }

    #[test]
    fn new_values_are_checked_too() {
        assert!(resumed(None, "frames", "0").unwrap_err().contains("frames must be at least 1"));
        assert!(resumed(None, "frames", "x").unwrap_err().starts_with("--frames: expected a count"));
    }
}
