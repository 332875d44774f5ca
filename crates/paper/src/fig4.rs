//! Figure 4: DQN and soft DQN on CartPole. The bounds hold with a network in the place of the table.
//!
//! The runs use the training service's own learner in lockstep (`runs`), with presets `paper-cartpole` and `authors-cartpole`
//! (`settings`). Each transition of every tenth batch is examined (`examiner`): its target stands in for Q_new(s,a), as in
//! the paper's section 5. The theorems hold for any number in that place, so their verdicts are checks of arithmetic. The
//! effect of the gradient step on the same states is a different question, which no theorem answers ([`real`]): how often and
//! by how much it leaves the bounds is measured by learning rate.
#![allow(clippy::disallowed_methods, reason = "the report states how long the figure took")]

mod examiner;
mod groups;
mod interval;
mod picture;
pub mod real;
mod runs;
mod settings;

use std::thread;
use std::time::Instant;

use ::settings::choices::EvaluationPolicy;
use ::settings::units::grouped;
use anyhow::Result;

use crate::experience::{Experience, Tally};
use crate::fig2::claim_bounds;
use crate::figure::{Figure, Verdict};
use crate::options::Options;
use groups::{CurvePoint, Group};
use interval::SeedInterval;
use runs::{Job, Part, Played};
use settings::{DQN, FigureLearner, SOFT_DQN, Source};

/// Learning rates beside the text's 0.005, at which real steps are examined.
const RATES: [&str; 3] = ["0.00005", "0.0005", "0.05"];
/// Learners of the runs at these rates.
const RATE_LEARNERS: [FigureLearner; 2] = [DQN, SOFT_DQN];
/// The mean score at which CartPole counts as solved; a game has at most 200 steps.
const SOLVED: f64 = 195.0;
/// Fewer seeds allow no verdict.
const SEEDS_MIN: usize = 5;
const GREEDY: Played = Played::Evaluation(EvaluationPolicy::Greedy);

/// The size of the experiment.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Steps of each run: of all alike, since one table compares them.
    steps: u64,
    /// Runs of each kind.
    seeds: u64,
    /// Updates from one that is examined to the next.
    examine_every: u64,
    /// Games of a run's last evaluation.
    final_episodes: u32,
}

const QUICK: Size = Size { steps: 4_000, seeds: 3, examine_every: 10, final_episodes: 20 };
const FULL: Size = Size { steps: settings::STEPS, seeds: 5, examine_every: 10, final_episodes: 100 };

/// Runs the experiment, draws it, and writes `fig4.csv`, `fig4_curves.csv` and `fig4_real.csv`. Also gives a sample of
/// soft DQN's experiences, for figure 5.
pub fn run(options: &Options, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    make(options, options.effort.pick(QUICK, FULL), say)
}

/// Experiences of soft DQN with preset `paper-cartpole`, over all seeds, for a figure 5 that is made alone.
pub fn sample(options: &Options, say: &dyn Fn(&str)) -> Result<Vec<Experience>> {
    let Size { steps, seeds, examine_every, .. } = options.effort.pick(QUICK, FULL);
    let job = |number: u64| {
        let seed = options.seed.wrapping_add(number);
        let resolved = settings::resolve(Source::Paper, SOFT_DQN, seed, steps, &[])?;
        // As a run by learning rate it is not evaluated, which is all that a part decides.
        let part = Part::LearningRate(resolved.settings.learning_rate);
        Ok(Job { part, learner: SOFT_DQN, resolved, examine_every, final_episodes: 1 })
    };
    let jobs = (0..seeds).map(job).collect::<Result<Vec<_>>>()?;
    let outcomes = runs::side_by_side(&jobs, workers(), say)?;
    let groups = Group::collect(&jobs, outcomes);
    Ok(groups[0].tally.kept().to_vec())
}

/// Runs at a time: one on each core.
fn workers() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn make(options: &Options, size: Size, say: &dyn Fn(&str)) -> Result<(Figure, Vec<Experience>)> {
    let started = Instant::now();
    let jobs = jobs(options.seed, size)?;
    let workers = workers();
    say(&format!("fig4: {} runs on CartPole, {workers} at a time", jobs.len()));
    let outcomes = runs::side_by_side(&jobs, workers, say)?;
    let groups = Group::collect(&jobs, outcomes);
    write(options, &groups)?;

    let mut figure = Figure::new("fig4", "CartPole, DQN and soft DQN: the bounds with a network", options);
    figure.about = format!(
        "A network of two layers of 256 on CartPole-v0, with the settings of the paper's text (preset paper-cartpole) and of \
         the authors' notebooks (authors-cartpole): {} steps and {} seeds for each learner. The notebook of DQN instantiates a \
         class DDQNAgent that it does not define (it defines DQNAgent), so DQN is run plain and double. All transitions of \
         every {}th update are examined, with the target in place of Q_new(s,a). Intervals are 95% intervals over seeds by \
         Student's t.",
        grouped(size.steps),
        size.seeds,
        size.examine_every
    );
    for source in Source::ALL {
        claim(&mut figure, &groups, source);
    }
    claim_real(&mut figure, &groups);
    tables(&mut figure, &groups);
    picture::draw(&mut figure, options, &groups)?;
    note_settings(&mut figure, size);
    let figure = figure.finish(options, started)?;
    groups.iter().try_for_each(|group| group.tally.check())?;
    let sample = find(&groups, Part::Preset(Source::Paper), SOFT_DQN).tally.kept().to_vec();
    Ok((figure, sample))
}

/// All runs.
fn jobs(seed: u64, size: Size) -> Result<Vec<Job>> {
    let Size { steps, seeds, examine_every, final_episodes } = size;
    let mut jobs = Vec::new();
    let mut add =
        |part, learner, resolved| jobs.push(Job { part, learner, resolved, examine_every, final_episodes });
    for seed in (0..seeds).map(|number| seed.wrapping_add(number)) {
        for source in Source::ALL {
            for learner in FigureLearner::ALL {
                let resolved = settings::resolve(source, learner, seed, steps, &[])?;
                add(Part::Preset(source), learner, resolved);
            }
        }
        for learner in RATE_LEARNERS {
            for rate in RATES {
                let changes = [("learning_rate", rate)];
                let resolved = settings::resolve(Source::Paper, learner, seed, steps, &changes)?;
                add(Part::LearningRate(resolved.settings.learning_rate), learner, resolved);
            }
        }
    }
    Ok(jobs)
}

fn find(groups: &[Group], part: Part, learner: FigureLearner) -> &Group {
    let wanted = |group: &&Group| group.part == part && group.learner == learner;
    groups.iter().find(wanted).expect("there are runs of each kind")
}

/// Groups with the settings of the text except for the learning rate, each learner's from the smallest.
fn by_rate(groups: &[Group]) -> Vec<&Group> {
    let is_shown = |group: &&Group| {
        RATE_LEARNERS.contains(&group.learner) && group.part != Part::Preset(Source::Authors)
    };
    let mut shown: Vec<&Group> = groups.iter().filter(is_shown).collect();
    shown.sort_by(|one, other| one.learning_rate.total_cmp(&other.learning_rate));
    shown.sort_by_key(|group| RATE_LEARNERS.iter().position(|learner| *learner == group.learner));
    shown
}

fn write(options: &Options, groups: &[Group]) -> Result<()> {
    let mut header = Experience::header(2);
    header.extend(Group::SUCCESSOR_HEADER.map(str::to_owned));
    let of_presets = || groups.iter().filter(|group| group.is_preset());
    options.csv("fig4.csv", &header, of_presets().flat_map(Group::transition_rows))?;
    options.csv("fig4_curves.csv", &Group::SCORE_HEADER, of_presets().flat_map(Group::score_rows))?;
    let real = by_rate(groups);
    options.csv("fig4_real.csv", &Group::REAL_HEADER, real.into_iter().flat_map(Group::real_rows))?;
    Ok(())
}

/// Claims about the runs of one preset, judged by these runs only.
fn claim(figure: &mut Figure, groups: &[Group], source: Source) {
    let of = |learner| find(groups, Part::Preset(source), learner);
    let tallies = |is_soft: bool| -> Vec<Tally> {
        let learners =
            FigureLearner::ALL.into_iter().filter(|learner| learner.algorithm.has_soft_policy == is_soft);
        learners.map(|learner| of(learner).tally.clone()).collect()
    };
    let preset = source.preset();
    let claim = format!("{preset}, DQN and double DQN: |EVB|, |PIV| and |EIV| are at most |TD|");
    claim_bounds(figure, &claim, &tallies(false));
    let claim =
        format!("{preset}, soft DQN: all three are at most ρ^max·|TD|, |EVB| and |EIV| at least ρ^min·|TD|");
    claim_bounds(figure, &claim, &tallies(true));
    let soft = &of(SOFT_DQN).tally;
    let measured = format!(
        "{} of {} transitions of soft DQN have |PIV| below ρ^min·|TD|",
        grouped(soft.policy_improves_less),
        grouped(soft.count)
    );
    let verdict = Verdict::of(soft.policy_improves_less > 0);
    figure.finding(&format!("{preset}: there is no such lower bound for |PIV|"), measured, verdict);
    for learner in FigureLearner::ALL {
        claim_solved(figure, of(learner), source);
    }
}

/// Neither the text nor the notebooks evaluate; the notebooks print the mean of the newest ten training games.
fn claim_solved(figure: &mut Figure, group: &Group, source: Source) {
    let (greedy, training) = (group.last(GREEDY), group.last(Played::Training));
    let measured = format!(
        "after {} steps: greedy policy {} of 200, newest ten training games {}; {} of {} seeds reached 195 in training",
        grouped(greedy.frames),
        greedy.score,
        training.score,
        group.seeds_with(|score| score.played == Played::Training && score.mean >= SOLVED),
        group.seeds,
    );
    let claim =
        format!("{}, {}: solves CartPole (195 by the greedy policy)", source.preset(), group.learner.title());
    figure.finding(&claim, measured, solved(greedy, group.seeds));
}

/// Holds or fails if the interval lies on one side of 195, after all steps and over enough seeds; otherwise open.
fn solved(last: CurvePoint, seeds: usize) -> Verdict {
    let (low, high) = last.score.ends();
    match seeds >= SEEDS_MIN && last.frames >= settings::STEPS {
        true if low >= SOLVED => Verdict::Holds,
        true if high < SOLVED => Verdict::Fails,
        _ => Verdict::Open,
    }
}

fn claim_real(figure: &mut Figure, groups: &[Group]) {
    let group = find(groups, Part::Preset(Source::Paper), SOFT_DQN);
    let above: Vec<_> = group.real().iter().map(|line| (line.metric, line.above)).collect();
    let shares = above.iter().map(|(metric, share)| {
        let percent = SeedInterval { mean: 100.0 * share.mean, half: share.half.map(|half| 100.0 * half) };
        format!("({percent})% of |{}|", metric.to_uppercase())
    });
    let measured = format!(
        "soft DQN with the text's settings: {} lie above ρ^max·|TD|, by seed",
        shares.collect::<Vec<_>>().join(", ")
    );
    let verdict = match group.seeds >= SEEDS_MIN {
        true => Verdict::of(above.iter().any(|(_, share)| share.ends().0 > 0.0)),
        false => Verdict::Open,
    };
    let claim =
        "beyond the paper: the theorems do not cover a real gradient step, and real steps leave the bounds";
    figure.finding(claim, measured, verdict);
}

fn tables(figure: &mut Figure, groups: &[Group]) {
    let columns = [&["learner", "settings"][..], &Tally::COLUMNS].concat();
    figure.table(
        "Transitions, with the target in place of Q_new. The theorems hold for any number in that place, targets of double \
         Q-learning and without a terminal mask included: this table checks the arithmetic.",
        &columns,
        groups.iter().map(Group::tally_row).collect(),
    );
    let of_presets = groups.iter().filter(|group| group.is_preset());
    figure.table(
        "Scores at the end, of 200: the newest ten games of training, which the notebooks print (there a failure counts -5 \
         instead of 1), and evaluations of the last weights. The stochastic policy of DQN takes 1% of its actions at random. \
         Mean and 95% t-interval over seeds, which may extend beyond 200.",
        &["settings", "learner", "policy", "steps", "mean", "seeds at 195"],
        of_presets.flat_map(|group| Played::ALL.map(|played| group.last_row(played))).collect(),
    );
    figure.table(
        "Beyond the paper: the same metrics with the real Q after the gradient step, against the same bounds; settings of \
         the text except for the learning rate. Each number is computed for each run, then mean and 95% t-interval over \
         seeds.",
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
    figure.setting("steps", size.steps);
    figure.setting("seeds", size.seeds);
    figure.setting("longest game", "200 steps, as CartPole-v0 has it");
    for source in Source::ALL {
        for (key, text) in settings::listed(source) {
            figure.setting(&format!("{key} ({})", source.preset()), text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Effort;

    #[test]
    fn a_small_version_holds_what_the_theorems_say_and_judges_no_learning() {
        let out = tempfile::tempdir().unwrap();
        let options = Options { effort: Effort::Quick, seed: 3, out: out.path().to_owned() };
        let size = Size { steps: 1_400, seeds: 2, examine_every: 5, final_episodes: 2 };
        let (figure, kept) = make(&options, size, &|_| {}).unwrap();
        assert!(figure.holds(), "{:?}", figure.claims);
        let open = figure.claims.iter().filter(|claim| claim.verdict == Verdict::Open).count();
        assert_eq!(open, 2 * 3 + 1, "two presets, three learners, and the real steps");
        assert!(kept.iter().any(Experience::policy_improves_less));
        for name in ["fig4_authors.png", "fig4_lower.png", "fig4_curves.svg", "fig4_real.svg", "fig4.json"] {
            assert!(out.path().join(name).is_file(), "{name}");
        }
        let file = |name: &str| std::fs::read_to_string(out.path().join(name)).unwrap();
        let rows = file("fig4.csv");
        assert!(rows.starts_with("trial,step,temperature,alpha,q_0,q_1,action,reward,target,"), "{rows:.80}");
        assert!(rows.lines().count() > 6 * 1_000);
        for row in ["paper-cartpole,dqn,1,0,1,", "authors-cartpole,soft-dqn,0,0.99,1,"] {
            assert!(rows.contains(&format!(",{row}")), "a termination in {row}");
        }
        assert_eq!(file("fig4_real.csv").lines().count(), 1 + 2 * 4 * 3, "learners, rates, metrics");
        // Evaluations at 11 points by two policies, training scores at 10.
        assert_eq!(file("fig4_curves.csv").lines().count(), 1 + 6 * 2 * (2 * 11 + 10));
        crate::agrees(out.path());
    }

    #[test]
    fn learning_is_judged_by_the_interval_after_all_steps_over_enough_seeds() {
        let judge = |mean, half, frames, seeds| {
            solved(CurvePoint { frames, score: SeedInterval { mean, half: Some(half) } }, seeds)
        };
        assert_eq!(judge(198.0, 2.0, 50_000, 5), Verdict::Holds);
        assert_eq!(judge(150.0, 40.0, 50_000, 5), Verdict::Fails);
        assert_eq!(judge(190.0, 8.0, 50_000, 5), Verdict::Open);
        assert_eq!([judge(198.0, 2.0, 50_000, 4), judge(150.0, 1.0, 49_999, 5)], [Verdict::Open; 2]);
    }

    #[test]
    fn the_bounds_hold_for_any_scalar_target() {
        let variants: [&[(&str, &str)]; 4] = [
            &[("n_step", "3")],
            &[("double", "true")],
            &[("dueling", "true")],
            &[("n_step", "5"), ("double", "true"), ("dueling", "true")],
        ];
        for learner in RATE_LEARNERS {
            for changes in variants {
                let resolved = settings::resolve(Source::Authors, learner, 1, 1_300, changes).unwrap();
                let part = Part::LearningRate(resolved.settings.learning_rate);
                let job = Job { part, learner, resolved, examine_every: 1, final_episodes: 1 };
                let outcome = job.run().unwrap();
                assert!(outcome.tally.count > 4_000, "{changes:?}: {}", outcome.tally.count);
                outcome.tally.check().unwrap();
            }
        }
    }
}
