//! The settings of a resumed run: its own, with the changes that [`settings::resume`] allows.

use anyhow::bail;
use settings::resolve::{Layers, Resolved, flag, variable};
use settings::resume::{ForbiddenChange, forbidden_changes};

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
    let before = run.settings.clone();
    if let Some(Err(error)) = run.settings.set(key, text) {
        bail!("{source}: {error}");
    }
    if let Some(ForbiddenChange { key, was, is }) = forbidden_changes(&before, &run.settings).first() {
        bail!(
            "{source} would change {key} from {was} to {is}, which a resumed run can't change: leave it out, or start a new run"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(resumed("lanes").unwrap_err().contains("lanes from 8 to 5"));
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
