//! The overview: progress, speed, scores, backpressure, and the cost of each stage.

use crate::actors::MEDIAN_LAG;
use crate::panel::{Dashboard, DashboardPanel, DashboardRow, Unit, mean, rate};

/// Seconds until the frame budget, at the speed of the last ten minutes; no value while no frames are stored.
const TIME_LEFT: &str = "clamp_min(max(quiver_learner_frames_budget) - max(quiver_learner_frames), 0) / (max(deriv(quiver_learner_frames[10m])) > 0)";
/// Frames stored per second. The count falls when a learner resumes from a checkpoint: `rate` would take that for a
/// counter reset and show a peak.
const STORED: &str = "clamp_min(max(deriv(quiver_learner_frames[1m])), 0)";

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Quiver: overview",
        about: "Progress, speed, scores, backpressure, and the cost of each stage",
        rows: vec![glance(), progress(), speed(), backpressure(), cost()],
    }
}

fn glance() -> DashboardRow {
    DashboardRow::new(
        "At a glance",
        [
            DashboardPanel::stat(
                "Frames",
                Unit::Number,
                "Emulator frames of the whole run.",
                "max(quiver_learner_frames)",
            ),
            DashboardPanel::stat(
                "Progress (% of frame budget)",
                Unit::Share,
                "Frames against the budget at which training ends.",
                "max(quiver_learner_frames) / max(quiver_learner_frames_budget)",
            ),
            DashboardPanel::stat(
                "Time left",
                Unit::Seconds,
                "Until the frame budget, at the speed of the last ten minutes.",
                TIME_LEFT,
            ),
            DashboardPanel::stat(
                "Frames per second",
                Unit::Of("frames/s"),
                "Frames stored in the last minute.",
                STORED,
            ),
            DashboardPanel::stat(
                "Updates per second",
                Unit::Of("updates/s"),
                "Gradient steps in the last minute.",
                "sum(rate(quiver_learner_updates_total[1m]))",
            ),
            DashboardPanel::stat(
                "Evaluation score",
                Unit::Number,
                "Mean score of the newest evaluation, unclipped.",
                "max(quiver_learner_evaluation_score)",
            ),
            DashboardPanel::stat(
                "Samples per insert",
                Unit::Number,
                "Mean number of times that each transition is used; the curve below also shows the target.",
                "max(quiver_learner_samples_per_insert)",
            ),
            DashboardPanel::stat(
                "Buffer fill",
                Unit::Share,
                "Transitions in all shards against their capacity.",
                "sum(quiver_replay_items) / sum(quiver_replay_capacity)",
            ),
            DashboardPanel::stat(
                "Actors",
                Unit::Number,
                "Actors connected to the learner.",
                "sum(quiver_learner_members{role=\"actor\"})",
            ),
            DashboardPanel::stat(
                "Shards",
                Unit::Number,
                "Shards that the learner can reach.",
                "max(quiver_learner_shards_reachable)",
            ),
            DashboardPanel::stat(
                "Weights lag",
                Unit::Of("updates"),
                "Updates between the newest weights and those of the median actor.",
                MEDIAN_LAG,
            ),
            DashboardPanel::stat(
                "Alerts",
                Unit::Number,
                "Firing alerts; docs/alerts.md explains how to react.",
                "count(ALERTS{alertstate=\"firing\"}) or vector(0)",
            ),
        ],
    )
}

/// The score curve, which the learner dashboard also shows.
pub(crate) fn score() -> DashboardPanel {
    DashboardPanel::lines(
        "Score",
        Unit::Number,
        "Mean unclipped scores: evaluations, the newest 20 training episodes, and the untrained network.",
        &[
            ("evaluation", "max(quiver_learner_evaluation_score)"),
            ("best", "max(quiver_learner_evaluation_best_score)"),
            ("training", "max(quiver_learner_training_score)"),
            ("untrained", "max(quiver_learner_evaluation_first_score)"),
        ],
    )
}

fn progress() -> DashboardRow {
    DashboardRow::new(
        "Progress",
        [
            score().wide(8),
            DashboardPanel::lines(
                "Estimated time to the budget",
                Unit::Seconds,
                "At the speed of the last ten minutes. At a constant speed it falls by one second per second.",
                &[("time left", TIME_LEFT)],
            )
            .wide(4),
        ],
    )
}

fn speed() -> DashboardRow {
    DashboardRow::new(
        "Speed",
        [
            DashboardPanel::lines(
                "Frames per second",
                Unit::Of("frames/s"),
                "Played by actors and stored in shards. The two differ while chunks are blocked or when they are lost.",
                &[("stored", STORED), ("played", rate!("quiver_actor_frames_total" where "job=\"actor\""))],
            ),
            DashboardPanel::lines(
                "Updates per second",
                Unit::Of("updates/s"),
                "Gradient steps. 0 while the replay fills up to min_size.",
                &[("updates", rate!("quiver_learner_updates_total"))],
            ),
            DashboardPanel::lines(
                "Samples per insert",
                Unit::Number,
                "Since the ratio last restarted, and its target; within 2% of it after thousands of updates.",
                &[
                    ("samples per insert", "max(quiver_learner_samples_per_insert)"),
                    ("target", "max(quiver_learner_samples_per_insert_target)"),
                ],
            ),
            DashboardPanel::lines(
                "Buffer fill",
                Unit::Share,
                "Transitions relative to capacity, and used bytes relative to the size of the rings.",
                &[
                    ("transitions", "sum(quiver_replay_items) / sum(quiver_replay_capacity)"),
                    ("bytes", "sum(quiver_replay_bytes_used) / sum(quiver_replay_bytes_max)"),
                ],
            ),
        ],
    )
}

fn backpressure() -> DashboardRow {
    DashboardRow::new(
        "Backpressure",
        [
            DashboardPanel::lines(
                "Share of time blocked",
                Unit::Share,
                "One side is always blocked for some time: the learner if actors are the bottleneck (add some), actors if the learner is.",
                &[
                    ("learner, on a batch", rate!("quiver_learner_batch_wait_seconds_total")),
                    (
                        "actors, on shards",
                        "avg(clamp_max(rate(quiver_actor_blocked_seconds_total{job=\"actor\"}[$__rate_interval]), 1))",
                    ),
                ],
            ),
            DashboardPanel::stack(
                "The learner is blocked on",
                Unit::Share,
                "Share of the last minute's scrapes at which the learner was blocked on this.",
                &[("{on}", "max by (on) (avg_over_time(quiver_learner_blocked[1m]))")],
            ),
            DashboardPanel::stack(
                "Actors are blocked on",
                Unit::Of("actors"),
                "Number of actors blocked on this, over the last minute. If it is a shard, the learner is the bottleneck.",
                &[("{on}", "sum by (on) (avg_over_time(quiver_actor_blocked{job=\"actor\"}[1m]))")],
            ),
            DashboardPanel::lines(
                "Blocked at the shards",
                Unit::Number,
                "Insert streams blocked on the learner, and learner calls blocked on inserts, over the last minute.",
                &[
                    ("insert streams", "sum(avg_over_time(quiver_replay_writers_blocked[1m]))"),
                    ("learner calls", "sum(avg_over_time(quiver_replay_grants_blocked[1m]))"),
                ],
            ),
        ],
    )
}

fn cost() -> DashboardRow {
    DashboardRow::new(
        "Cost of each stage",
        [
            DashboardPanel::stack(
                "Busy time",
                Unit::Of("s/s"),
                "Seconds of work per second, over all processes: 1 is one fully used core.",
                &[
                    ("play", rate!("quiver_actor_step_seconds_sum" where "job=\"actor\"")),
                    ("store", rate!("quiver_replay_insert_seconds_sum")),
                    ("sample", rate!("quiver_replay_sample_seconds_sum")),
                    (
                        "decode and assemble",
                        rate!("quiver_learner_stage_seconds_total" where "stage=~\"decode|assemble\""),
                    ),
                    ("train", rate!("quiver_learner_update_seconds_sum")),
                ],
            ),
            DashboardPanel::lines(
                "Time per operation",
                Unit::Seconds,
                "Mean time of one agent step in all lanes of an actor, storing a chunk, sampling for a request, preparing a batch, and an update.",
                &[
                    ("agent step", mean!("quiver_actor_step_seconds" where "job=\"actor\"")),
                    ("store a chunk", mean!("quiver_replay_insert_seconds")),
                    ("sample", mean!("quiver_replay_sample_seconds")),
                    ("prepare a batch", mean!("quiver_learner_prepare_seconds")),
                    ("update", mean!("quiver_learner_update_seconds")),
                ],
            ),
            DashboardPanel::stack(
                "CPU",
                Unit::Of("cores"),
                "Cores used by each kind of process.",
                &[(
                    "{job}",
                    "sum by (job) (rate(process_cpu_seconds_total{job!=\"prometheus\"}[$__rate_interval]))",
                )],
            ),
            DashboardPanel::stack(
                "Memory",
                Unit::Bytes,
                "Resident memory of each kind of process.",
                &[("{job}", "sum by (job) (process_resident_memory_bytes{job!=\"prometheus\"})")],
            ),
        ],
    )
}
