//! The replay dashboard: one series per shard, named by its address.

use crate::panel::{Dashboard, DashboardPanel, DashboardRow, Unit, percentile};

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "replay",
        title: "Quiver: replay",
        about: "Shards: contents, rates, latency, sampled transitions, errors",
        rows: vec![held(), rates(), latency(), drawn(), errors()],
    }
}

fn held() -> DashboardRow {
    DashboardRow::new(
        "Contents",
        [
            DashboardPanel::lines(
                "Transitions",
                Unit::Number,
                "Transitions that can be sampled, by shard. If a shard falls to 0, it restarted empty.",
                &[("{instance}", "quiver_replay_items"), ("capacity of one", "max(quiver_replay_capacity)")],
            ),
            DashboardPanel::lines(
                "Bytes",
                Unit::Bytes,
                "Bytes of the ring that hold chunks. If the ring is full while transitions are below capacity, raise replay_bytes.",
                &[
                    ("{instance}", "quiver_replay_bytes_used"),
                    ("size of one", "max(quiver_replay_bytes_max)"),
                ],
            ),
            DashboardPanel::lines(
                "Bytes per transition",
                Unit::Bytes,
                "Encoded frames and records. It depends on the game, and changes as the agent improves.",
                &[("{instance}", "quiver_replay_bytes_used / (quiver_replay_items > 0)")],
            ),
            DashboardPanel::lines(
                "Priority mass",
                Unit::Number,
                "Sum of the sampling weights of each shard. Shards are sampled in proportion to it.",
                &[("{instance}", "quiver_replay_mass")],
            ),
        ],
    )
}

fn rates() -> DashboardRow {
    DashboardRow::new(
        "Rates",
        [
            DashboardPanel::lines(
                "Inserts",
                Unit::Of("transitions/s"),
                "Transitions stored, by shard; all shards should be about equal.",
                &[("{instance}", "rate(quiver_replay_inserts_total[$__rate_interval])")],
            ),
            DashboardPanel::lines(
                "Samples",
                Unit::Of("transitions/s"),
                "Transitions sampled, by shard, in proportion to the priority mass.",
                &[("{instance}", "rate(quiver_replay_samples_total[$__rate_interval])")],
            ),
            DashboardPanel::stack(
                "Priority updates",
                Unit::Of("updates/s"),
                "By result. Stale near applied: items are evicted before the learner uses them.",
                &[("{result}", "sum by (result) (rate(quiver_replay_priority_updates_total[$__rate_interval]))")],
            ),
            DashboardPanel::lines(
                "Stale updates",
                Unit::Share,
                "Share of the priority updates whose transition was already evicted, by shard.",
                &[(
                    "{instance}",
                    "sum by (instance) (rate(quiver_replay_priority_updates_total{result=\"stale\"}[2m])) / (sum by (instance) (rate(quiver_replay_priority_updates_total[2m])) > 0)",
                )],
            ),
            DashboardPanel::lines(
                "Chunks",
                Unit::Of("chunks/s"),
                "By result. Lost and refused should stay at 0.",
                &[("{result}", "sum by (result) (rate(quiver_replay_chunks_total[$__rate_interval]))")],
            )
            .wide(4),
            DashboardPanel::stack(
                "Evictions",
                Unit::Of("transitions/s"),
                "Transitions evicted, by cause. Bytes: the ring is full before the capacity is reached.",
                &[("{cause}", "sum by (cause) (rate(quiver_replay_removals_total[$__rate_interval]))")],
            )
            .wide(4),
            DashboardPanel::lines(
                "Allowance left",
                Unit::Of("inserts"),
                "Inserts that the learner has granted and that are not used yet. At 0 the shard blocks its writers.",
                &[("{instance}", "clamp_min(quiver_replay_insert_allowance - quiver_replay_inserts_total, 0)")],
            )
            .wide(4),
        ],
    )
}

fn latency() -> DashboardRow {
    DashboardRow::new(
        "Latency",
        [
            DashboardPanel::lines(
                "Storing a chunk",
                Unit::Seconds,
                "Median and 99th percentile. Milliseconds: the machine is out of memory or CPU.",
                &[
                    ("p50 {instance}", percentile!(0.5, "quiver_replay_insert_seconds" by "instance")),
                    ("p99 {instance}", percentile!(0.99, "quiver_replay_insert_seconds" by "instance")),
                ],
            ),
            DashboardPanel::lines(
                "Sampling for a request",
                Unit::Seconds,
                "Median and 99th percentile of the time to sample the items of one request.",
                &[
                    ("p50 {instance}", percentile!(0.5, "quiver_replay_sample_seconds" by "instance")),
                    ("p99 {instance}", percentile!(0.99, "quiver_replay_sample_seconds" by "instance")),
                ],
            ),
            DashboardPanel::lines(
                "Blocked calls and writers",
                Unit::Number,
                "Calls waiting for the store (never 0: add shards), and insert streams blocked on the learner.",
                &[
                    ("calls {instance}", "avg_over_time(quiver_replay_calls_waiting[1m])"),
                    ("writers {instance}", "avg_over_time(quiver_replay_writers_blocked[1m])"),
                ],
            ),
            DashboardPanel::lines(
                "Flushing to disk",
                Unit::Share,
                "Share of time spent on flushing changes to disk (--fsync). Near 100%: the disk is too slow.",
                &[("{instance}", "rate(quiver_replay_sync_seconds_sum[$__rate_interval])")],
            ),
        ],
    )
}

fn drawn() -> DashboardRow {
    DashboardRow::new(
        "Sampled transitions",
        [
            DashboardPanel::heatmap(
                "Priorities of sampled transitions",
                Unit::Number,
                "All shards. It moves down as TD errors shrink. For the priorities of all stored items, use quiver inspect.",
                "sum by (le) (increase(quiver_replay_sampled_priority_bucket[$__rate_interval]))",
            ),
            DashboardPanel::heatmap(
                "Ages of sampled transitions",
                Unit::Of("inserts"),
                "Inserts into the shard since the transition's own insert. All near the capacity: new transitions are not sampled.",
                "sum by (le) (increase(quiver_replay_sampled_age_inserts_bucket[$__rate_interval]))",
            ),
        ],
    )
}

fn errors() -> DashboardRow {
    DashboardRow::new(
        "Writers and errors",
        [
            DashboardPanel::lines(
                "Writers connected",
                Unit::Of("streams"),
                "Open insert streams, by shard.",
                &[("{instance}", "quiver_replay_writers_connected")],
            ),
            DashboardPanel::lines(
                "Refused calls",
                Unit::Of("calls/s"),
                "Calls and streams refused, by reason. A few with reason fenced after restarts are normal.",
                &[(
                    "{reason}",
                    "sum by (reason) (rate(quiver_replay_requests_refused_total[$__rate_interval]))",
                )],
            ),
            DashboardPanel::lines(
                "Damaged records",
                Unit::Of("records"),
                "Records found damaged or missing when a shard started, by kind: the machine lost power, or the disk is failing.",
                &[("{kind}", "sum by (kind) (quiver_replay_damaged_total)")],
            ),
            DashboardPanel::lines(
                "Transitions without frames",
                Unit::Of("transitions/s"),
                "Dropped because their frames were already evicted: replay_bytes is too small for the number of lanes.",
                &[("{instance}", "rate(quiver_replay_items_without_frames_total[$__rate_interval])")],
            ),
        ],
    )
}
