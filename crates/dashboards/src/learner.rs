//! The learner's page: what it learns, where its time goes, where its batches come from.

use crate::overview::score;
use crate::panel::{Dashboard, Panel, Row, Unit, percentile, rate};

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "learner",
        title: "Quiver: learner",
        about: "What the learner learns, where its time goes, and what it learns from",
        rows: vec![learning(), time(), batches(), output()],
    }
}

fn learning() -> Row {
    Row::new(
        "Learning",
        [
            Panel::lines(
                "Loss",
                Unit::Number,
                "Weighted mean over the last 200 updates. Growing by orders of magnitude: divergence.",
                &[("loss", "max(quiver_learner_loss)")],
            ),
            Panel::lines(
                "TD error",
                Unit::Number,
                "Mean |TD| over the last 200 updates.",
                &[("|TD|", "max(quiver_learner_td_error)")],
            ),
            Panel::lines(
                "Q-value",
                Unit::Number,
                "Mean over states and actions. Far above what rewards can add up to: divergence.",
                &[("Q", "max(quiver_learner_q)")],
            ),
            Panel::lines(
                "Entropy of the policy",
                Unit::Of("nats"),
                "In sampled states. 0 early on: no exploration; the logarithm of the number of actions for ever: nothing is learned.",
                &[("entropy", "max(quiver_learner_policy_entropy_nats)")],
            ),
            Panel::lines(
                "Gradient norm",
                Unit::Number,
                "Mean length before clamping, over the last 200 updates.",
                &[("gradient", "max(quiver_learner_gradient_norm)")],
            ),
            Panel::lines(
                "Importance weights",
                Unit::Number,
                "Mean over batches, each divided by its largest. Near 0: a few rare items dominate each batch.",
                &[("mean weight", "max(quiver_learner_importance_weight)")],
            ),
        ],
    )
    .wide(4)
}

fn time() -> Row {
    Row::new(
        "Where the time goes",
        [
            Panel::stack(
                "Training thread",
                Unit::Share,
                "Waiting for a batch, training in libtorch, publishing weights, writing checkpoints. What is missing to 100% is the record and the rest.",
                &[
                    ("training", rate!("quiver_learner_update_seconds_sum")),
                    ("publishing", rate!("quiver_learner_stage_seconds_total" where "stage=\"publish\"")),
                    ("checkpoints", rate!("quiver_learner_checkpoint_seconds_sum")),
                    ("waiting", rate!("quiver_learner_batch_wait_seconds_total")),
                ],
            ),
            Panel::stack(
                "Preparing batches, beside it",
                Unit::Share,
                "Waiting for shards to draw, unpacking frames, copying to tensors on the device. Near 100% together: sampling is the limit.",
                &[
                    ("drawing", rate!("quiver_learner_stage_seconds_total" where "stage=\"draw\"")),
                    ("unpacking", rate!("quiver_learner_stage_seconds_total" where "stage=\"unpack\"")),
                    ("copying", rate!("quiver_learner_stage_seconds_total" where "stage=\"copy\"")),
                ],
            ),
            Panel::lines(
                "Time of an update and of a batch",
                Unit::Seconds,
                "One gradient step in libtorch, and sampling and unpacking one batch. The second above the first: sampling is the limit.",
                &[
                    ("update p50", percentile!(0.5, "quiver_learner_update_seconds")),
                    ("update p99", percentile!(0.99, "quiver_learner_update_seconds")),
                    ("batch p50", percentile!(0.5, "quiver_learner_prepare_seconds")),
                    ("batch p99", percentile!(0.99, "quiver_learner_prepare_seconds")),
                ],
            ),
        ],
    )
    .wide(4)
}

fn batches() -> Row {
    Row::new(
        "What it learns from",
        [
            Panel::lines(
                "Batches ahead",
                Unit::Of("batches"),
                "Batches that wait for the training thread, and batches drawn after the one being learned from. Always 0: sampling is the limit.",
                &[
                    ("waiting", "max(quiver_learner_prefetched_batches)"),
                    ("lag", "max(quiver_learner_prefetch_lag_updates)"),
                ],
            ),
            Panel::lines(
                "Age of sampled transitions",
                Unit::Of("inserts"),
                "Mean number of inserts into its shard after a sampled transition.",
                &[("age", "max(quiver_learner_sample_age_inserts)")],
            ),
            Panel::stack(
                "Priorities sent back",
                Unit::Of("priorities/s"),
                "By what became of them. Dropped: shards are slower than training; lost: a shard was away.",
                &[("{result}", "sum by (result) (rate(quiver_learner_priorities_total[$__rate_interval]))")],
            ),
            Panel::lines(
                "Largest priority",
                Unit::Number,
                "The largest seen in any shard. It never falls; growing without end is divergence.",
                &[("largest", "max(quiver_learner_largest_priority)")],
            ),
        ],
    )
}

fn output() -> Row {
    Row::new(
        "What comes of it",
        [
            score().wide(6),
            Panel::lines(
                "Published weights",
                Unit::Of("updates"),
                "Updates behind the newest published weights. It falls when a learner resumes from a checkpoint.",
                &[("version", "max(quiver_learner_weights_version)")],
            ),
            Panel::lines(
                "Trouble",
                Unit::Number,
                "Since this learner started: transitions that could not be unpacked (the log names the actor), calls refused, priorities lost or dropped.",
                &[
                    ("undecodable", "sum(quiver_learner_undecodable_items_total)"),
                    ("refused", "sum(quiver_learner_requests_refused_total)"),
                    ("priorities lost", "sum(quiver_learner_priorities_total{result=~\"lost|dropped\"})"),
                ],
            ),
        ],
    )
}
