//! How a sweep's settings differ from the paper's.

use settings::resolve::Layers;
use settings::{Resolved, SETTINGS, presets};
use sweep::Run;
use sweep::plan::OWN;

/// The preset with the paper's own settings.
pub const PAPER: &str = "paper-atari";

/// The preset that a run is compared with: the paper's, or the run's own where the paper's is for other games.
pub fn compared(run: &Run) -> &str {
    let is_for_it = presets::find(PAPER).is_ok_and(|preset| preset.is_for(&run.game));
    if is_for_it { PAPER } else { &run.resolved.preset }
}

/// Where a run's settings are not those of the preset that it is held against, as (setting, here, there).
pub fn differences(run: &Run) -> Vec<(&'static str, String, String)> {
    let Ok(paper) = (Layers { preset: Some(compared(run)), ..Layers::default() }).resolve(Some(&run.game))
    else {
        return Vec::new();
    };
    let keys = SETTINGS.iter().map(|setting| setting.key).filter(|key| !OWN.contains(key));
    let of = |resolved: &Resolved, key: &str| resolved.settings.get(key).unwrap_or_default();
    let both = keys.map(|key| (key, of(&run.resolved, key), of(&paper, key)));
    both.filter(|(_, here, there)| here != there).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use run::command::Sweep;
    use sweep::plan;
    use sweep::testing::sweep;

    use super::*;

    #[test]
    fn what_differs_from_the_papers_settings_is_known() {
        let of = |preset: &str| {
            let games = vec!["boxing".to_owned()];
            let sweep = Sweep { games, preset: Some(preset.to_owned()), flags: Vec::new(), ..sweep(5_000) };
            differences(&plan::runs(Path::new("out"), 0, &sweep).unwrap()[0])
        };
        assert_eq!(of("paper-atari"), []);
        let own = differences(&plan::runs(Path::new("out"), 0, &sweep(5_000)).unwrap()[0]);
        assert_eq!(
            own.iter().map(|(key, ..)| *key).collect::<Vec<_>>(),
            ["frames"],
            "of CartPole's own preset"
        );
        let quick = of("quick");
        assert!(quick.iter().any(|(key, here, there)| *key == "temperature" && here != there), "{quick:?}");
        assert!(!quick.iter().any(|(key, ..)| *key == "strategy" || *key == "discount"), "{quick:?}");
    }
}
