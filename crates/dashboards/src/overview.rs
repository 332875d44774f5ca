//! The overview: how far, how fast, how well, and who holds it up.

use crate::actors::MEDIAN_LAG;
use crate::panel::{Dashboard, Panel, Row, Unit, mean, rate};

/// Seconds until the frame budget, at the speed of the last ten minutes; nothing while the run stands still.
const TIME_LEFT: &str = "clamp_min(max(quiver_learner_frames_budget) - max(quiver_learner_frames), 0) / (max(deriv(quiver_learner_frames[10m])) > 0)";
/// Frames stored per second. The count falls when a learner resumes from a checkpoint: a rate would take that for a new
/// counter and show a peak.
const STORED: &str = "clamp_min(max(deriv(quiver_learner_frames[1m])), 0)";

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Quiver: overview",
        about: "How far the run is, how fast, how well it plays, who waits for whom, and what each stage costs",
        rows: vec![glance(), progress(), pace(), waiting(), cost()],
    }
}

fn glance() -> Row {
    Row::new(
        "At a glance",
        [
            Panel::stat(
                "Frames",
                Unit::Number,
                "Emulator frames of the whole run.",
                "max(quiver_learner_frames)",
            ),
            Panel::stat(
                "Done",
                Unit::Share,
                "Frames against the budget at which training ends.",
                "max(quiver_learner_frames) / max(quiver_learner_frames_budget)",
            ),
            Panel::stat(
                "Time left",
                Unit::Seconds,
                "Until the frame budget, at the speed of the last ten minutes.",
                TIME_LEFT,
            ),
            Panel::stat(
                "Frames per second",
                Unit::Of("frames/s"),
                "Frames stored in the last minute.",
                STORED,
            ),
            Panel::stat(
                "Updates per second",
                Unit::Of("updates/s"),
                "Gradient steps in the last minute.",
                "sum(rate(quiver_learner_updates_total[1m]))",
            ),
            Panel::stat(
                "Evaluation score",
                Unit::Number,
                "Mean score of the newest evaluation, unclipped.",
                "max(quiver_learner_evaluation_score)",
            ),
            Panel::stat(
                "Samples per insert",
                Unit::Number,
                "How often each transition is learned from; the target is beside it in the curve below.",
                "max(quiver_learner_samples_per_insert)",
            ),
            Panel::stat(
                "Buffer fill",
                Unit::Share,
                "Transitions in all shards against their capacity.",
                "sum(quiver_replay_items) / sum(quiver_replay_capacity)",
            ),
            Panel::stat(
                "Actors",
                Unit::Number,
                "Actors that are connected to the learner.",
                "sum(quiver_learner_members{role=\"actor\"})",
            ),
            Panel::stat(
                "Shards",
                Unit::Number,
                "Shards that answer the learner.",
                "max(quiver_learner_shards_reachable)",
            ),
            Panel::stat(
                "Weights' lag",
                Unit::Of("updates"),
                "How far the median actor's weights are behind the newest.",
                MEDIAN_LAG,
            ),
            Panel::stat(
                "Alerts",
                Unit::Number,
                "Alerts that fire now; docs/alerts.md says what to do.",
                "count(ALERTS{alertstate=\"firing\"}) or vector(0)",
            ),
        ],
    )
}

/// The score curve, which the learner's page has, too.
pub(crate) fn score() -> Panel {
    Panel::lines(
        "Score",
        Unit::Number,
        "Mean unclipped scores: of evaluations, of the newest 20 training games, and of the untrained network.",
        &[
            ("evaluation", "max(quiver_learner_evaluation_score)"),
            ("best", "max(quiver_learner_evaluation_best_score)"),
            ("training", "max(quiver_learner_training_score)"),
            ("untrained", "max(quiver_learner_evaluation_first_score)"),
        ],
    )
}

fn progress() -> Row {
    Row::new(
        "Progress",
        [
            score().wide(8),
            Panel::lines(
                "Estimated time to the budget",
                Unit::Seconds,
                "At the speed of the ten minutes before. It falls by one second a second when the speed is steady.",
                &[("time left", TIME_LEFT)],
            )
            .wide(4),
        ],
    )
}

fn pace() -> Row {
    Row::new(
        "Pace",
        [
            Panel::lines(
                "Frames per second",
                Unit::Of("frames/s"),
                "Played by actors and stored in shards. They part when chunks wait or are lost.",
                &[("stored", STORED), ("played", rate!("quiver_actor_frames_total" where "job=\"actor\""))],
            ),
            Panel::lines(
                "Updates per second",
                Unit::Of("updates/s"),
                "Gradient steps. It stands still while the buffer fills to its least size.",
                &[("updates", rate!("quiver_learner_updates_total"))],
            ),
            Panel::lines(
                "Samples per insert",
                Unit::Number,
                "Since the ratio last began, against its target; after thousands of updates within 2% of it.",
                &[
                    ("samples per insert", "max(quiver_learner_samples_per_insert)"),
                    ("target", "max(quiver_learner_samples_per_insert_target)"),
                ],
            ),
            Panel::lines(
                "Buffer fill",
                Unit::Share,
                "Transitions against capacity, and bytes of the rings against their size.",
                &[
                    ("transitions", "sum(quiver_replay_items) / sum(quiver_replay_capacity)"),
                    ("bytes", "sum(quiver_replay_bytes_used) / sum(quiver_replay_bytes_max)"),
                ],
            ),
        ],
    )
}

fn waiting() -> Row {
    Row::new(
        "Who waits for whom",
        [
            Panel::lines(
                "Share of time spent waiting",
                Unit::Share,
                "One side always waits a little: the learner if actors are the limit (add some), actors if the learner is.",
                &[
                    ("learner, for a batch", rate!("quiver_learner_batch_wait_seconds_total")),
                    (
                        "actors, for room",
                        "avg(clamp_max(rate(quiver_actor_wait_seconds_total{job=\"actor\"}[$__rate_interval]), 1))",
                    ),
                ],
            ),
            Panel::stack(
                "The learner waits for",
                Unit::Share,
                "Share of the last minute's scrapes that found it waiting for this.",
                &[("{for}", "max by (for) (avg_over_time(quiver_learner_waiting[1m]))")],
            ),
            Panel::stack(
                "Actors wait for",
                Unit::Of("actors"),
                "Actors that wait for this, over the last minute. Waiting for a shard means that the learner is the limit.",
                &[("{for}", "sum by (for) (avg_over_time(quiver_actor_waiting{job=\"actor\"}[1m]))")],
            ),
            Panel::lines(
                "Waiting at the shards",
                Unit::Number,
                "Insert streams that wait for the learner, and learners that wait for inserts, over the last minute.",
                &[
                    ("insert streams", "sum(avg_over_time(quiver_replay_writers_waiting[1m]))"),
                    ("learners", "sum(avg_over_time(quiver_replay_grants_waiting[1m]))"),
                ],
            ),
        ],
    )
}

fn cost() -> Row {
    Row::new(
        "What each stage costs",
        [
            Panel::stack(
                "Busy time",
                Unit::Of("s/s"),
                "Seconds of work per second, over all processes: 1 is one core's worth.",
                &[
                    ("play", rate!("quiver_actor_step_seconds_sum" where "job=\"actor\"")),
                    ("store", rate!("quiver_replay_insert_seconds_sum")),
                    ("draw", rate!("quiver_replay_sample_seconds_sum")),
                    (
                        "unpack and copy",
                        rate!("quiver_learner_stage_seconds_total" where "stage=~\"unpack|copy\""),
                    ),
                    ("train", rate!("quiver_learner_update_seconds_sum")),
                ],
            ),
            Panel::lines(
                "Time of one piece of work",
                Unit::Seconds,
                "Mean time of a decision in all lanes of an actor, of storing a chunk, drawing for a request, preparing a batch, and an update.",
                &[
                    ("decision", mean!("quiver_actor_step_seconds" where "job=\"actor\"")),
                    ("store a chunk", mean!("quiver_replay_insert_seconds")),
                    ("draw", mean!("quiver_replay_sample_seconds")),
                    ("prepare a batch", mean!("quiver_learner_prepare_seconds")),
                    ("update", mean!("quiver_learner_update_seconds")),
                ],
            ),
            Panel::stack(
                "CPU",
                Unit::Of("cores"),
                "Cores taken by each kind of process.",
                &[(
                    "{job}",
                    "sum by (job) (rate(process_cpu_seconds_total{job!=\"prometheus\"}[$__rate_interval]))",
                )],
            ),
            Panel::stack(
                "Memory",
                Unit::Bytes,
                "Resident memory of each kind of process.",
                &[("{job}", "sum by (job) (process_resident_memory_bytes{job!=\"prometheus\"})")],
            ),
        ],
    )
}
