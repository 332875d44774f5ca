//! The replay page: each shard by its address.

use crate::panel::{Dashboard, Panel, Row, Unit, percentile};

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "replay",
        title: "Quiver: replay",
        about: "Each shard: how full, how fast, how quick to answer, what is drawn from it",
        rows: vec![held(), rates(), latency(), drawn(), trouble()],
    }
}

fn held() -> Row {
    Row::new(
        "What the shards hold",
        [
            Panel::lines(
                "Transitions",
                Unit::Number,
                "Transitions that can be drawn, by shard; one that falls to 0 came back empty.",
                &[("{instance}", "quiver_replay_items"), ("capacity of one", "max(quiver_replay_capacity)")],
            ),
            Panel::lines(
                "Bytes",
                Unit::Bytes,
                "Bytes of the ring that hold chunks. At its size while transitions are below capacity: raise replay_bytes.",
                &[
                    ("{instance}", "quiver_replay_bytes_used"),
                    ("size of one", "max(quiver_replay_bytes_max)"),
                ],
            ),
            Panel::lines(
                "Bytes per transition",
                Unit::Bytes,
                "Packed frames and records. It depends on the game and changes as play gets better.",
                &[("{instance}", "quiver_replay_bytes_used / (quiver_replay_items > 0)")],
            ),
            Panel::lines(
                "Priority mass",
                Unit::Number,
                "Weight of each shard: it is drawn from in proportion to its share of the sum.",
                &[("{instance}", "quiver_replay_mass")],
            ),
        ],
    )
}

fn rates() -> Row {
    Row::new(
        "Rates",
        [
            Panel::lines(
                "Inserts",
                Unit::Of("transitions/s"),
                "Transitions stored, by shard; all should be about the same.",
                &[("{instance}", "rate(quiver_replay_inserts_total[$__rate_interval])")],
            ),
            Panel::lines(
                "Samples",
                Unit::Of("transitions/s"),
                "Transitions drawn, by shard, in proportion to its mass.",
                &[("{instance}", "rate(quiver_replay_samples_total[$__rate_interval])")],
            ),
            Panel::stack(
                "Priority updates",
                Unit::Of("updates/s"),
                "By what became of them. Stale near applied: items are evicted before they are learned from.",
                &[("{result}", "sum by (result) (rate(quiver_replay_priority_updates_total[$__rate_interval]))")],
            ),
            Panel::lines(
                "Stale updates",
                Unit::Share,
                "Share of the priority updates whose transition was gone, by shard.",
                &[(
                    "{instance}",
                    "sum by (instance) (rate(quiver_replay_priority_updates_total{result=\"stale\"}[2m])) / (sum by (instance) (rate(quiver_replay_priority_updates_total[2m])) > 0)",
                )],
            ),
            Panel::lines(
                "Chunks",
                Unit::Of("chunks/s"),
                "Chunks by what became of them; lost and refused should stay at 0.",
                &[("{result}", "sum by (result) (rate(quiver_replay_chunks_total[$__rate_interval]))")],
            )
            .wide(4),
            Panel::stack(
                "Evictions",
                Unit::Of("transitions/s"),
                "Transitions that made room, by what for. Bytes: frames fill a shard before transitions do.",
                &[("{cause}", "sum by (cause) (rate(quiver_replay_evictions_total[$__rate_interval]))")],
            )
            .wide(4),
            Panel::lines(
                "Allowance left",
                Unit::Of("inserts"),
                "Inserts that the learner has granted and that did not come yet. 0: the shard holds its writers.",
                &[("{instance}", "clamp_min(quiver_replay_inserts_allowed - quiver_replay_inserts_total, 0)")],
            )
            .wide(4),
        ],
    )
}

fn latency() -> Row {
    Row::new(
        "Latency",
        [
            Panel::lines(
                "Storing a chunk",
                Unit::Seconds,
                "Half of all chunks are stored within the first, 99 of 100 within the second. Milliseconds: out of memory or CPU.",
                &[
                    ("p50 {instance}", percentile!(0.5, "quiver_replay_insert_seconds" by "instance")),
                    ("p99 {instance}", percentile!(0.99, "quiver_replay_insert_seconds" by "instance")),
                ],
            ),
            Panel::lines(
                "Drawing for a request",
                Unit::Seconds,
                "The same of drawing what one request asks for.",
                &[
                    ("p50 {instance}", percentile!(0.5, "quiver_replay_sample_seconds" by "instance")),
                    ("p99 {instance}", percentile!(0.99, "quiver_replay_sample_seconds" by "instance")),
                ],
            ),
            Panel::lines(
                "Waiting for the shard",
                Unit::Number,
                "Calls that wait while another uses the store (never 0: add shards), and insert streams that wait for the learner.",
                &[
                    ("calls {instance}", "avg_over_time(quiver_replay_calls_waiting[1m])"),
                    ("writers {instance}", "avg_over_time(quiver_replay_writers_waiting[1m])"),
                ],
            ),
            Panel::lines(
                "Writing to the disk",
                Unit::Share,
                "Share of the time spent on bringing changes to the disk (--fsync). Near 100%: the disk is too slow.",
                &[("{instance}", "rate(quiver_replay_sync_seconds_sum[$__rate_interval])")],
            ),
        ],
    )
}

fn drawn() -> Row {
    Row::new(
        "What is drawn",
        [
            Panel::heatmap(
                "Priorities of drawn transitions",
                Unit::Number,
                "All shards. It moves down as errors shrink; quiver inspect shows all that are stored.",
                "sum by (le) (increase(quiver_replay_drawn_priority_bucket[$__rate_interval]))",
            ),
            Panel::heatmap(
                "Ages of drawn transitions",
                Unit::Of("inserts"),
                "Inserts into its shard since a drawn transition came. All near the capacity: new ones are not drawn.",
                "sum by (le) (increase(quiver_replay_drawn_age_inserts_bucket[$__rate_interval]))",
            ),
        ],
    )
}

fn trouble() -> Row {
    Row::new(
        "Trouble",
        [
            Panel::lines(
                "Writers connected",
                Unit::Of("streams"),
                "Insert streams that are open, by shard.",
                &[("{instance}", "quiver_replay_writers_connected")],
            ),
            Panel::lines(
                "Refused calls",
                Unit::Of("calls/s"),
                "Calls and streams refused, by reason; a little fenced after restarts is normal.",
                &[(
                    "{reason}",
                    "sum by (reason) (rate(quiver_replay_requests_refused_total[$__rate_interval]))",
                )],
            ),
            Panel::lines(
                "Damaged records",
                Unit::Of("records"),
                "Found damaged or missing when a shard started, by kind: loss of power, or a failing disk.",
                &[("{kind}", "sum by (kind) (quiver_replay_damaged_total)")],
            ),
            Panel::lines(
                "Transitions without frames",
                Unit::Of("transitions/s"),
                "Dropped because frames that they need were gone: replay_bytes is too small for the number of lanes.",
                &[("{instance}", "rate(quiver_replay_items_without_frames_total[$__rate_interval])")],
            ),
        ],
    )
}
