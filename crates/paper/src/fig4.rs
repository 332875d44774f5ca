//! Figure 4: DQN and soft DQN on CartPole. The bounds hold with a network in the place of the table.
//!
//! The runs are the training service's own learner in lockstep (`runs`), with the appendix's settings as they are and
//! beside them with ours (`settings`). Every so many updates each transition of the batch is looked at
//! (`examiner`): its target stands in for Q_new(s,a), as in the paper's section 5, and the theorems must hold for
//! every single one. What the gradient step really did to the same states is another matter, and no theorem's
//! ([`real`]): how often and by how much it leaves the bounds is measured by learning rate.

mod examiner;
mod groups;
mod picture;
pub mod real;
mod runs;
mod settings;

use std::thread;
use std::time::Instant;

use ::settings::algorithms::{self, Algorithm};
use ::settings::choices::EvaluationPolicy;
use ::settings::units::grouped;
use anyhow::Result;

use crate::experience::{Experience, Tally};
use crate::fig2::claim_bounds;
use crate::figure::{Figure, Verdict};
use crate::options::Options;
use groups::Group;
use runs::{Job, Part};

/// Both learners, the plain one first.
const ALGORITHMS: [Algorithm; 2] = [algorithms::DQN, algorithms::SOFT_DQN];
/// Learning rates beside the appendix's own 0.005, at which real steps are looked at.
const RATES: [&str; 3] = ["0.00005", "0.0005", "0.05"];
/// What counts as CartPole solved: the mean score of games of at most 200 steps.
const SOLVED: f64 = 195.0;

/// How much is done.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Steps of each run; ours has no more than its preset.
    steps: u64,
    /// Runs of each kind.
    seeds: u64,
    /// Updates from one that is examined to the next.
    examine_every: u64,
    /// Games of a run's last evaluation.
    final_episodes: u32,
}

const QUICK: Size = Size { steps: 8_000, seeds: 2, examine_every: 10, final_episodes: 20 };
const FULL: Size = Size { steps: settings::STEPS, seeds: 3, examine_every: 10, final_episodes: 100 };

/// Runs the experiment, draws it, and writes `fig4.csv`, `fig4_curves.csv` and `fig4_real.csv`. Also gives a sample of
/// soft DQN's experiences, for figure 5.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    make(options, options.effort.pick(QUICK, FULL), say)
}

/// Experiences of the first run of soft DQN with the appendix's settings, for a figure 5 that is made alone.
pub fn sample(options: &Options) -> Result<Vec<Experience>> {
    let Size { steps, examine_every, .. } = options.effort.pick(QUICK, FULL);
    let resolved = settings::appendix(algorithms::SOFT_DQN, options.seed, steps, &[])?;
    // As a run by learning rate it is not evaluated, which is all that a part decides.
    let part = Part::LearningRate(resolved.settings.learning_rate);
    Ok(Job { part, resolved, examine_every, final_episodes: 1 }.run()?.tally.kept().to_vec())
}

fn make(options: &Options, size: Size, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    let started = Instant::now();
    let jobs = jobs(options.seed, size)?;
    let workers = thread::available_parallelism().map_or(1, usize::from);
    say(&format!("fig4: {} runs on CartPole, {workers} at a time", jobs.len()));
    let outcomes = runs::side_by_side(&jobs, workers, say)?;
    let groups = Group::collect(&jobs, outcomes);
    write(options, &groups)?;

    let mut figure = Figure::new("fig4", "CartPole, DQN and soft DQN: the bounds with a network", options);
    figure.about = format!(
        "A network of two layers of 256 on CartPole with the appendix's settings (Adam at 0.005, a buffer of 1,000, batches \
         of 16, β 0.5), {} steps and {} seeds for each learner, and beside it our preset. All transitions of every {}th \
         update are examined, the target standing in for Q_new(s,a).",
        size.steps, size.seeds, size.examine_every
    );
    claim(&mut figure, &groups);
    tables(&mut figure, &groups);
    picture::draw(&mut figure, options, &groups)?;
    note_settings(&mut figure, size);
    let figure = figure.finish(options, started)?;
    groups.iter().try_for_each(|group| group.tally.check())?;
    let sample = find(&groups, Part::Appendix, algorithms::SOFT_DQN).tally.kept().to_vec();
    Ok((figure, sample))
}

/// All runs, the longest first.
fn jobs(seed: u64, size: Size) -> Result<Vec<Job>> {
    let Size { steps, seeds, examine_every, final_episodes } = size;
    let mut jobs = Vec::new();
    let mut add = |part, resolved| jobs.push(Job { part, resolved, examine_every, final_episodes });
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        for algorithm in ALGORITHMS {
            add(Part::Appendix, settings::appendix(algorithm, seed, steps, &[])?);
            add(Part::Ours, settings::ours(algorithm, seed, steps)?);
            for rate in RATES {
                let resolved = settings::appendix(algorithm, seed, steps, &[("learning_rate", rate)])?;
                add(Part::LearningRate(resolved.settings.learning_rate), resolved);
            }
        }
    }
    Ok(jobs)
}

fn find(groups: &[Group], part: Part, algorithm: Algorithm) -> &Group {
    let wanted = |group: &&Group| group.part == part && group.algorithm == algorithm;
    groups.iter().find(wanted).expect("there are runs of each kind")
}

/// Groups with the appendix's settings but for the learning rate, each learner's from the smallest.
fn by_rate(groups: &[Group]) -> Vec<&Group> {
    let mut of: Vec<&Group> = groups.iter().filter(|group| group.part != Part::Ours).collect();
    of.sort_by(|one, other| one.learning_rate.total_cmp(&other.learning_rate));
    of.sort_by_key(|group| ALGORITHMS.iter().position(|algorithm| *algorithm == group.algorithm));
    of
}

fn write(options: &Options, groups: &[Group]) -> Result<()> {
    let header = Experience::header(2);
    let appendix = || groups.iter().filter(|group| group.part == Part::Appendix);
    let rows = appendix().flat_map(|group| group.tally.kept().iter().map(Experience::row));
    options.csv("fig4.csv", &header, rows)?;
    options.csv("fig4_curves.csv", &Group::SCORE_HEADER, groups.iter().flat_map(Group::score_rows))?;
    let real = by_rate(groups);
    options.csv("fig4_real.csv", &Group::REAL_HEADER, real.into_iter().flat_map(Group::real_rows))?;
    Ok(())
}

fn claim(figure: &mut Figure, groups: &[Group]) {
    let tallies = |algorithm| -> Vec<Tally> {
        let of = groups.iter().filter(|group| group.algorithm == algorithm);
        of.map(|group| group.tally.clone()).collect()
    };
    let (dqn, soft) = (tallies(algorithms::DQN), tallies(algorithms::SOFT_DQN));
    claim_bounds(figure, "DQN: |EVB|, |PIV| and |EIV| are at most |TD| on every transition", &dqn);
    let claim = "soft DQN: all three are at most ρ^max·|TD|, |EVB| and |EIV| at least ρ^min·|TD|, on every transition";
    claim_bounds(figure, claim, &soft);
    let (less, count) = soft
        .iter()
        .fold((0, 0), |(less, count), tally| (less + tally.policy_improves_less, count + tally.count));
    let measured = format!(
        "{} of {} transitions of soft DQN have |PIV| below ρ^min·|TD|",
        grouped(less),
        grouped(count)
    );
    figure.finding("there is no such lower bound for |PIV|", measured, Verdict::of(less > 0));

    for algorithm in ALGORITHMS {
        let group = find(groups, Part::Appendix, algorithm);
        let last = |policy| group.curve(policy).last().copied().unwrap_or_default();
        let (stochastic, greedy) = (last(EvaluationPolicy::Stochastic), last(EvaluationPolicy::Greedy));
        let measured = format!(
            "after {} steps: stochastic {:.0} ± {:.0}, greedy {:.0} ± {:.0} of 200",
            grouped(greedy.frames),
            stochastic.mean,
            stochastic.stderr,
            greedy.mean,
            greedy.stderr
        );
        // Fewer steps than the appendix has can show that it learns, and not that it does not.
        let short = greedy.frames < settings::STEPS;
        let solved = Verdict::of(greedy.mean >= SOLVED);
        let verdict = if short && solved == Verdict::Fails { Verdict::Open } else { solved };
        let claim =
            format!("{algorithm} learns CartPole with the appendix's settings (195 by the greedy policy)");
        figure.claim(&claim, measured, verdict);
    }

    let group = find(groups, Part::Appendix, algorithms::SOFT_DQN);
    claim_policies(figure, group);
    let above: Vec<_> = group.real.lines().iter().map(|line| (line.metric, line.above)).collect();
    let shares: Vec<_> = above
        .iter()
        .map(|(metric, share)| format!("{:.1}% of |{}|", 100.0 * share, metric.to_uppercase()))
        .collect();
    figure.finding(
        "beyond the paper: the theorems do not speak of a real gradient step, and it does leave the bounds",
        format!("soft DQN at the appendix's learning rate: {} lie above ρ^max·|TD|", shares.join(", ")),
        Verdict::of(above.iter().any(|(_, share)| *share > 0.0)),
    );
}

/// At β 0.5 the policy that learned is rarely as good as the greedy one of the same weights.
fn claim_policies(figure: &mut Figure, group: &Group) {
    let end = group.curve(EvaluationPolicy::Greedy).last().map_or(0, |point| point.frames);
    let later = |policy| group.evaluations(policy).filter(move |score| 2 * score.frames >= end);
    let solved = |policy| later(policy).filter(|score| score.mean >= SOLVED).count();
    let (stochastic, greedy) = (solved(EvaluationPolicy::Stochastic), solved(EvaluationPolicy::Greedy));
    let count = later(EvaluationPolicy::Greedy).count();
    let measured = format!(
        "of {count} evaluations in the second half of the runs, {stochastic} reach 195 by the stochastic policy and {greedy} by \
         the greedy one"
    );
    let verdict = match end < settings::STEPS {
        true => Verdict::Open,
        false => Verdict::of(2 * stochastic < count && 2 * greedy > count),
    };
    figure.finding(
        "soft DQN with the appendix's settings: the stochastic policy rarely holds 195, the greedy one mostly does",
        measured,
        verdict,
    );
}

fn tables(figure: &mut Figure, groups: &[Group]) {
    let columns = [&["learner", "settings"][..], &Tally::COLUMNS].concat();
    figure.table(
        "Transitions, the target standing in for Q_new. Our settings have targets of three steps and double Q-learning: \
         the theorems hold for any number in that place.",
        &columns,
        groups.iter().map(Group::tally_row).collect(),
    );
    let curves = groups.iter().filter(|group| !group.scores.is_empty());
    let rows = curves.flat_map(|group| {
        [EvaluationPolicy::Stochastic, EvaluationPolicy::Greedy].map(|policy| group.last_row(policy, SOLVED))
    });
    figure.table(
        "Scores of the last weights, of 200; plain DQN's stochastic policy takes 1% of its actions at random",
        &["learner", "settings", "policy", "steps", "mean over seeds", "standard error", "seeds at 195"],
        rows.collect(),
    );
    figure.table(
        "Beyond the paper: the same metrics with the real Q after the gradient step, against the same bounds",
        &[
            "learner",
            "learning rate",
            "metric",
            "above the upper bound",
            "below the lower",
            "median ratio",
            "95% ratio",
        ],
        by_rate(groups).into_iter().flat_map(Group::real_table).collect(),
    );
}

fn note_settings(figure: &mut Figure, size: Size) {
    for (key, text) in settings::TEXT {
        figure.setting(key, text);
    }
    figure.setting("steps", size.steps);
    figure.setting("seeds", size.seeds);
    for (key, text, why) in settings::SILENT {
        figure.setting(&format!("{key} (the appendix is silent)"), format!("{text}: {why}"));
    }
    figure.setting(
        "epsilon of DQN (the appendix is silent)",
        "from 1 to 0.01 over the first tenth of the run: soft DQN needs none",
    );
    figure.setting("longest game", "200 steps, as CartPole-v0 has it");
    for (key, text) in settings::differences() {
        figure.setting(&format!("{key} (ours)"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    #[test]
    fn a_small_version_holds_what_the_theorems_say_and_shows_a_small_piv() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 3, out: out.path().to_owned() };
        let size = Size { steps: 1_400, seeds: 1, examine_every: 5, final_episodes: 2 };
        let (figure, kept) = make(&options, size, &|_| {}).unwrap();
        assert!(figure.holds(), "{:?}", figure.claims);
        assert!(kept.iter().any(Experience::policy_improves_less));
        for name in ["fig4.csv", "fig4_curves.csv", "fig4_real.csv", "fig4_real.svg", "fig4.json"] {
            assert!(out.path().join(name).is_file(), "{name}");
        }
        let rows = std::fs::read_to_string(out.path().join("fig4.csv")).unwrap();
        assert!(rows.starts_with("trial,step,temperature,alpha,q_0,q_1,action,reward,target,"), "{rows:.80}");
        assert!(rows.lines().count() > 2 * 1_000);
        let rates = std::fs::read_to_string(out.path().join("fig4_real.csv")).unwrap();
        assert_eq!(rates.lines().count(), 1 + 2 * 4 * 3, "two learners, four rates, three metrics");
        crate::agrees(out.path());
    }

    #[test]
    fn the_bounds_hold_for_any_scalar_target() {
        let variants: [&[(&str, &str)]; 4] = [
            &[("n_step", "3")],
            &[("double", "true")],
            &[("dueling", "true")],
            &[("n_step", "5"), ("double", "true"), ("dueling", "true")],
        ];
        for algorithm in ALGORITHMS {
            for changes in variants {
                let resolved = settings::appendix(algorithm, 1, 1_300, changes).unwrap();
                let part = Part::LearningRate(resolved.settings.learning_rate);
                let outcome = Job { part, resolved, examine_every: 1, final_episodes: 1 }.run().unwrap();
                assert!(outcome.tally.count > 4_000, "{changes:?}: {}", outcome.tally.count);
                outcome.tally.check().unwrap();
            }
        }
    }
}
