//! Groups runs that differ only in their seed.
//!
//! Presets give games different settings, so runs are compared with runs of the same game: the settings that tell groups
//! apart are those that differ between runs of one game. Runs of several games belong to one group if they agree in these.

use std::collections::BTreeSet;

use settings::{Resolved, SETTINGS};

/// Settings that change neither what is learned nor what an evaluation measures, apart from chance.
const NEUTRAL: [&str; 9] = [
    "seed",
    "device",
    "torch_threads",
    "checkpoint_every_frames",
    "checkpoints_kept",
    "evaluate_every_frames",
    "evaluate_episodes",
    "evaluate_final_episodes",
    "baselines",
];

/// Settings that name a group best, if they suffice to tell groups apart.
const FIRST: [&str; 2] = ["algorithm", "strategy"];

/// The groups of some runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// `strategy=ver`, in the order in which the groups' first runs were given.
    pub labels: Vec<String>,
    /// The group of each run, by position.
    pub of_run: Vec<usize>,
    /// Settings that differ between groups too, but that no label needs.
    pub also: Vec<&'static str>,
    /// Settings that differ between games and not within one.
    pub by_game: Vec<&'static str>,
}

impl Groups {
    /// Groups runs. `ignored` settings do not tell runs apart.
    pub fn of(runs: &[&Resolved], ignored: &[&str]) -> Self {
        let keys = FIRST.into_iter().chain(SETTINGS.iter().map(|setting| setting.key).filter(is_not_first));
        let keys: Vec<&str> = keys.filter(|key| !NEUTRAL.contains(key) && !ignored.contains(key)).collect();
        let classes = |keys: &[&str]| -> usize {
            let class = |run: &&Resolved| (run.game.clone(), values(run, keys));
            runs.iter().map(class).collect::<BTreeSet<_>>().len()
        };
        let games = classes(&[]);
        let (varying, constant): (Vec<&str>, Vec<&str>) =
            keys.into_iter().partition(|key| classes(&[*key]) > games);
        let several =
            |key: &&str| runs.iter().map(|run| values(run, &[*key])).collect::<BTreeSet<_>>().len() > 1;
        // The fewest settings that tell all groups apart, the best names first.
        let mut named: Vec<&'static str> = Vec::new();
        let mut also = Vec::new();
        for key in varying {
            let longer = [named.as_slice(), &[key]].concat();
            if classes(&longer) > classes(&named) { named = longer } else { also.push(key) }
        }
        let mut labels = Vec::new();
        let of_run = runs.iter().map(|run| {
            let label = label(run, &named);
            labels.iter().position(|known| *known == label).unwrap_or_else(|| {
                labels.push(label);
                labels.len() - 1
            })
        });
        let of_run = of_run.collect();
        Self { labels, of_run, also, by_game: constant.into_iter().filter(several).collect() }
    }
}

fn is_not_first(key: &&'static str) -> bool {
    !FIRST.contains(key)
}

fn values(run: &Resolved, keys: &[&str]) -> Vec<Option<String>> {
    keys.iter().map(|key| run.settings.get(key)).collect()
}

fn label(run: &Resolved, keys: &[&str]) -> String {
    let value = |key: &&str| format!("{key}={}", run.settings.get(key).unwrap_or_default());
    let parts: Vec<String> = keys.iter().map(value).collect();
    if parts.is_empty() { "all runs".to_owned() } else { parts.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::Layers;

    fn run(game: &str, flags: &[(&str, &str)]) -> Resolved {
        let flags = flags.iter().map(|(key, text)| ((*key).into(), (*text).into())).collect();
        Layers { flags, ..Layers::default() }.resolve(Some(game)).unwrap()
    }

    fn groups(runs: &[Resolved], ignored: &[&str]) -> Groups {
        Groups::of(&runs.iter().collect::<Vec<_>>(), ignored)
    }

    #[test]
    fn every_named_setting_exists() {
        let known = |key: &&str| SETTINGS.iter().any(|setting| setting.key == *key);
        assert!(NEUTRAL.iter().chain(&FIRST).all(known));
    }

    #[test]
    fn runs_that_differ_in_seed_or_placement_are_one_group() {
        let runs = [
            run("cartpole", &[("seed", "1")]),
            run("cartpole", &[("seed", "2"), ("device", "cpu"), ("evaluate_episodes", "3")]),
        ];
        let groups = groups(&runs, &[]);
        assert_eq!((groups.labels, groups.of_run), (vec!["all runs".to_owned()], vec![0, 0]));
    }

    #[test]
    fn a_label_has_the_fewest_settings_that_tell_groups_apart() {
        let runs = [
            run("cartpole", &[("algorithm", "soft-dqn"), ("strategy", "per")]),
            run("cartpole", &[("algorithm", "dqn"), ("strategy", "per")]),
        ];
        let groups = groups(&runs, &[]);
        assert_eq!(groups.labels, ["algorithm=soft-dqn", "algorithm=dqn"]);
        assert_eq!(groups.also, ["epsilon", "epsilon_final"]);
    }

    #[test]
    fn two_settings_are_named_if_one_does_not_suffice() {
        let of = |strategy, frames| run("cartpole", &[("strategy", strategy), ("frames", frames)]);
        let runs = [of("ver", "20k"), of("ver", "30k"), of("per", "20k"), of("ver", "20k")];
        let all = groups(&runs, &[]);
        assert_eq!(
            all.labels,
            ["strategy=ver frames=20000", "strategy=ver frames=30000", "strategy=per frames=20000"]
        );
        assert_eq!(all.of_run, [0, 1, 2, 0]);
        assert_eq!(groups(&runs, &["frames"]).labels, ["strategy=ver", "strategy=per"]);
    }

    #[test]
    fn a_group_has_runs_of_games_with_different_presets() {
        let of = |game, strategy| run(game, &[("strategy", strategy)]);
        let runs = [of("cartpole", "ver"), of("cartpole", "per"), of("pong", "per"), of("pong", "ver")];
        let groups = groups(&runs, &[]);
        assert_eq!((groups.labels.len(), groups.of_run), (2, vec![0, 1, 1, 0]));
        assert!(groups.by_game.contains(&"network") && !groups.by_game.contains(&"strategy"));
    }
}
