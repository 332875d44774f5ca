//! The actors dashboard: all actors together. There may be hundreds, so no series shows a single actor.

use crate::panel::{Dashboard, DashboardPanel, DashboardRow, Unit, percentile, rate};

/// Lag of the median actor's weights behind the newest, in updates.
pub(crate) const MEDIAN_LAG: &str = "quantile(0.5, clamp_min(scalar(max(quiver_learner_weights_version)) - quiver_actor_weights_version{job=\"actor\"}, 0))";

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "actors",
        title: "Quiver: actors",
        about: "Actors: speed, weights lag, scores, restarts",
        rows: vec![glance(), playing(), games(), members()],
    }
}

fn glance() -> DashboardRow {
    DashboardRow::new(
        "At a glance",
        [
            DashboardPanel::stat(
                "Actors",
                Unit::Number,
                "Actors connected to the learner.",
                "sum(quiver_learner_members{role=\"actor\"})",
            ),
            DashboardPanel::stat(
                "Frames per second",
                Unit::Of("frames/s"),
                "Emulator frames per second, all actors together.",
                "sum(rate(quiver_actor_frames_total{job=\"actor\"}[1m]))",
            ),
            DashboardPanel::stat(
                "Environments",
                Unit::Number,
                "Lanes of all actors; a lane is one environment of an actor.",
                "sum(quiver_actor_lanes{job=\"actor\"})",
            ),
            DashboardPanel::stat(
                "Training score",
                Unit::Number,
                "Mean unclipped score of the newest 20 training episodes.",
                "max(quiver_learner_training_score)",
            ),
            DashboardPanel::stat(
                "Episodes",
                Unit::Of("episodes/min"),
                "Completed training episodes per minute.",
                "60 * sum(rate(quiver_actor_episodes_total{job=\"actor\"}[5m]))",
            ),
            DashboardPanel::stat(
                "Joined in the last hour",
                Unit::Number,
                "Actors that joined as new members: starts and restarts.",
                "round(sum(increase(quiver_learner_joins_total{role=\"actor\"}[1h])))",
            ),
        ],
    )
}

fn playing() -> DashboardRow {
    DashboardRow::new(
        "Playing",
        [
            DashboardPanel::lines(
                "Frames per second, all actors",
                Unit::Of("frames/s"),
                "Emulator frames, all actors together.",
                &[("all actors", rate!("quiver_actor_frames_total" where "job=\"actor\""))],
            ),
            DashboardPanel::lines(
                "Frames per second per actor",
                Unit::Of("frames/s"),
                "Fastest, median and slowest. One far below the others: a slow machine, or its shards block it.",
                &[
                    ("fastest", "max(rate(quiver_actor_frames_total{job=\"actor\"}[$__rate_interval]))"),
                    (
                        "median",
                        "quantile(0.5, rate(quiver_actor_frames_total{job=\"actor\"}[$__rate_interval]))",
                    ),
                    ("slowest", "min(rate(quiver_actor_frames_total{job=\"actor\"}[$__rate_interval]))"),
                ],
            ),
            DashboardPanel::lines(
                "Time of one agent step",
                Unit::Seconds,
                "In all lanes of an actor: inference, emulation, encoding. It grows when there are more processes than cores.",
                &[
                    ("p50", percentile!(0.5, "quiver_actor_step_seconds" where "job=\"actor\"")),
                    ("p99", percentile!(0.99, "quiver_actor_step_seconds" where "job=\"actor\"")),
                ],
            ),
            DashboardPanel::lines(
                "Share of time blocked on shards",
                Unit::Share,
                "Actors are blocked because shards accept no inserts: the learner is the bottleneck. Mean and worst actor.",
                &[
                    (
                        "mean",
                        "avg(clamp_max(rate(quiver_actor_blocked_seconds_total{job=\"actor\"}[$__rate_interval]), 1))",
                    ),
                    (
                        "worst",
                        "max(clamp_max(rate(quiver_actor_blocked_seconds_total{job=\"actor\"}[$__rate_interval]), 1))",
                    ),
                ],
            ),
        ],
    )
}

fn games() -> DashboardRow {
    DashboardRow::new(
        "Weights and episodes",
        [
            DashboardPanel::lines(
                "Weights lag",
                Unit::Of("updates"),
                "Updates between the newest weights and those of an actor: median and worst. Up to about the publishing period is normal.",
                &[
                    ("median", MEDIAN_LAG),
                    (
                        "worst",
                        "max(clamp_min(scalar(max(quiver_learner_weights_version)) - quiver_actor_weights_version{job=\"actor\"}, 0))",
                    ),
                ],
            ),
            DashboardPanel::lines(
                "Weights loaded",
                Unit::Of("loads/s"),
                "Per actor: mean and slowest. 0 while the learner publishes: weights do not arrive.",
                &[
                    ("mean", "avg(rate(quiver_actor_weights_loads_total{job=\"actor\"}[2m]))"),
                    ("slowest", "min(rate(quiver_actor_weights_loads_total{job=\"actor\"}[2m]))"),
                ],
            ),
            DashboardPanel::lines(
                "Episode returns",
                Unit::Number,
                "Unclipped score of the newest episode of each actor: 90th percentile, median, 10th percentile.",
                &[
                    (
                        "p90",
                        "quantile(0.9, quiver_actor_episode_score{job=\"actor\"} and quiver_actor_episodes_total{job=\"actor\"} > 0)",
                    ),
                    (
                        "median",
                        "quantile(0.5, quiver_actor_episode_score{job=\"actor\"} and quiver_actor_episodes_total{job=\"actor\"} > 0)",
                    ),
                    (
                        "p10",
                        "quantile(0.1, quiver_actor_episode_score{job=\"actor\"} and quiver_actor_episodes_total{job=\"actor\"} > 0)",
                    ),
                    ("mean of the newest 20", "max(quiver_learner_training_score)"),
                ],
            ),
            DashboardPanel::lines(
                "Chunks in flight",
                Unit::Of("chunks"),
                "Sent and not yet acknowledged: all actors together, and the largest value of one actor.",
                &[
                    ("all actors", "sum(quiver_actor_chunks_in_flight{job=\"actor\"})"),
                    ("largest of one actor", "max(quiver_actor_chunks_in_flight{job=\"actor\"})"),
                ],
            ),
        ],
    )
}

fn members() -> DashboardRow {
    DashboardRow::new(
        "Members",
        [
            DashboardPanel::lines(
                "Connected members",
                Unit::Number,
                "Connected to the learner, and scraped by Prometheus. The two differ while an actor is connected but not scraped, or the reverse.",
                &[
                    ("{role}s connected", "sum by (role) (quiver_learner_members)"),
                    ("actors scraped", "sum(up{job=\"actor\"})"),
                ],
            ),
            DashboardPanel::lines(
                "Starts and restarts",
                Unit::Of("in the last hour"),
                "Actors that joined as new members, and processes restarted at the same address. If it grows although no actor is added, actors crash.",
                &[
                    ("joined", "round(sum(increase(quiver_learner_joins_total{role=\"actor\"}[1h])))"),
                    ("restarted", "sum(changes(process_start_time_seconds{job=\"actor\"}[1h]))"),
                    ("rejoined", "round(sum(increase(quiver_actor_joins_total{job=\"actor\"}[1h])))"),
                ],
            ),
            DashboardPanel::lines(
                "Delivery errors",
                Unit::Of("per minute"),
                "Insert streams reopened, chunks sent twice (stored once), episode reports dropped.",
                &[
                    ("reconnects", "60 * sum(rate(quiver_actor_shard_reconnects_total{job=\"actor\"}[2m]))"),
                    (
                        "duplicate chunks",
                        "60 * sum(rate(quiver_actor_duplicate_chunks_total{job=\"actor\"}[2m]))",
                    ),
                    (
                        "reports dropped",
                        "60 * sum(rate(quiver_actor_reports_dropped_total{job=\"actor\"}[2m]))",
                    ),
                ],
            ),
            DashboardPanel::lines(
                "Memory of one actor",
                Unit::Bytes,
                "Median and largest. It should stay constant.",
                &[
                    ("median", "quantile(0.5, process_resident_memory_bytes{job=\"actor\"})"),
                    ("largest", "max(process_resident_memory_bytes{job=\"actor\"})"),
                ],
            ),
        ],
    )
}
