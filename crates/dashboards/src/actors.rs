//! The actors' page: the fleet as a whole. There may be hundreds, so no series is of one actor.

use crate::panel::{Dashboard, Panel, Row, Unit, percentile, rate};

/// Updates by which the median actor's weights are behind the newest.
pub(crate) const MEDIAN_LAG: &str = "quantile(0.5, clamp_min(scalar(max(quiver_learner_weights_version)) - quiver_actor_weights_version{job=\"actor\"}, 0))";

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "actors",
        title: "Quiver: actors",
        about: "The fleet of actors: how fast it plays, with how old weights, how well, and who was lost",
        rows: vec![glance(), playing(), games(), fleet()],
    }
}

fn glance() -> Row {
    Row::new(
        "At a glance",
        [
            Panel::stat(
                "Actors",
                Unit::Number,
                "Actors that are connected to the learner.",
                "sum(quiver_learner_members{role=\"actor\"})",
            ),
            Panel::stat(
                "Fleet",
                Unit::Of("frames/s"),
                "Emulator frames that all actors play in a second.",
                "sum(rate(quiver_actor_frames_total{job=\"actor\"}[1m]))",
            ),
            Panel::stat(
                "Environments",
                Unit::Number,
                "Lanes of all actors: environments stepped side by side.",
                "sum(quiver_actor_lanes{job=\"actor\"})",
            ),
            Panel::stat(
                "Training score",
                Unit::Number,
                "Mean score of the newest 20 training games.",
                "max(quiver_learner_training_score)",
            ),
            Panel::stat(
                "Games",
                Unit::Of("games/min"),
                "Training games that ended, per minute.",
                "60 * sum(rate(quiver_actor_episodes_total{job=\"actor\"}[5m]))",
            ),
            Panel::stat(
                "Joined in the last hour",
                Unit::Number,
                "Actors that joined as new ones: starts and restarts.",
                "round(sum(increase(quiver_learner_joins_total{role=\"actor\"}[1h])))",
            ),
        ],
    )
}

fn playing() -> Row {
    Row::new(
        "Playing",
        [
            Panel::lines(
                "Frames per second, fleet",
                Unit::Of("frames/s"),
                "Emulator frames that all actors play.",
                &[("fleet", rate!("quiver_actor_frames_total" where "job=\"actor\""))],
            ),
            Panel::lines(
                "Frames per second, one actor",
                Unit::Of("frames/s"),
                "The fastest, the median and the slowest. One far below: a slow machine, or its shard holds it.",
                &[
                    ("fastest", "max(rate(quiver_actor_frames_total{job=\"actor\"}[$__rate_interval]))"),
                    (
                        "median",
                        "quantile(0.5, rate(quiver_actor_frames_total{job=\"actor\"}[$__rate_interval]))",
                    ),
                    ("slowest", "min(rate(quiver_actor_frames_total{job=\"actor\"}[$__rate_interval]))"),
                ],
            ),
            Panel::lines(
                "Time of one decision",
                Unit::Seconds,
                "In all lanes of an actor: inference, emulation, packing. It grows with too many processes for the cores.",
                &[
                    ("p50", percentile!(0.5, "quiver_actor_step_seconds" where "job=\"actor\"")),
                    ("p99", percentile!(0.99, "quiver_actor_step_seconds" where "job=\"actor\"")),
                ],
            ),
            Panel::lines(
                "Share of time spent waiting for room",
                Unit::Share,
                "Nothing is played because shards take nothing: the learner is the limit. Mean and worst actor.",
                &[
                    (
                        "mean",
                        "avg(clamp_max(rate(quiver_actor_wait_seconds_total{job=\"actor\"}[$__rate_interval]), 1))",
                    ),
                    (
                        "worst",
                        "max(clamp_max(rate(quiver_actor_wait_seconds_total{job=\"actor\"}[$__rate_interval]), 1))",
                    ),
                ],
            ),
        ],
    )
}

fn games() -> Row {
    Row::new(
        "Weights and games",
        [
            Panel::lines(
                "Weights' lag",
                Unit::Of("updates"),
                "Updates by which actors are behind the newest weights: the median and the worst. About the publishing period is normal.",
                &[
                    ("median", MEDIAN_LAG),
                    (
                        "worst",
                        "max(clamp_min(scalar(max(quiver_learner_weights_version)) - quiver_actor_weights_version{job=\"actor\"}, 0))",
                    ),
                ],
            ),
            Panel::lines(
                "Weights taken over",
                Unit::Of("loads/s"),
                "Per actor: the mean and the slowest. 0 while the learner publishes: they do not arrive.",
                &[
                    ("mean", "avg(rate(quiver_actor_weights_loads_total{job=\"actor\"}[2m]))"),
                    ("slowest", "min(rate(quiver_actor_weights_loads_total{job=\"actor\"}[2m]))"),
                ],
            ),
            Panel::lines(
                "Episode returns",
                Unit::Number,
                "Unclipped scores of the newest game of each actor: the best tenth, the median, the worst tenth.",
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
            Panel::lines(
                "Chunks in flight",
                Unit::Of("chunks"),
                "Sent and not acknowledged yet, over all actors; the most of one actor.",
                &[
                    ("fleet", "sum(quiver_actor_chunks_in_flight{job=\"actor\"})"),
                    ("most of one", "max(quiver_actor_chunks_in_flight{job=\"actor\"})"),
                ],
            ),
        ],
    )
}

fn fleet() -> Row {
    Row::new(
        "The fleet",
        [
            Panel::lines(
                "Members",
                Unit::Number,
                "Connected to the learner, and scraped by Prometheus. They part when one side loses sight of some.",
                &[
                    ("{role}s connected", "sum by (role) (quiver_learner_members)"),
                    ("actors scraped", "sum(up{job=\"actor\"})"),
                ],
            ),
            Panel::lines(
                "Starts and restarts",
                Unit::Of("in the last hour"),
                "Actors that joined as new ones, and processes that started again at the same address. If it grows although no actor is added, actors crash.",
                &[
                    ("joined", "round(sum(increase(quiver_learner_joins_total{role=\"actor\"}[1h])))"),
                    ("restarted", "sum(changes(process_start_time_seconds{job=\"actor\"}[1h]))"),
                    (
                        "joined again",
                        "round(sum(increase(quiver_actor_incarnations_total{job=\"actor\"}[1h])))",
                    ),
                ],
            ),
            Panel::lines(
                "Trouble on the way",
                Unit::Of("per minute"),
                "Streams to shards opened again, chunks sent twice (and stored once), reports of games that were dropped.",
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
            Panel::lines(
                "Memory of one actor",
                Unit::Bytes,
                "Median and largest. It should be level.",
                &[
                    ("median", "quantile(0.5, process_resident_memory_bytes{job=\"actor\"})"),
                    ("largest", "max(process_resident_memory_bytes{job=\"actor\"})"),
                ],
            ),
        ],
    )
}
