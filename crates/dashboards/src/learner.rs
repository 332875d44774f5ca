//! The learner dashboard: training statistics, use of time, batches, scores.

use crate::overview::score;
use crate::panel::{Dashboard, DashboardPanel, DashboardRow, Unit, percentile, rate};

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "learner",
        title: "Quiver: learner",
        about: "Training statistics, use of time, batches, scores",
        rows: vec![learning(), time(), batches(), output()],
    }
}

fn learning() -> DashboardRow {
    DashboardRow::new(
        "Learning",
        [
            DashboardPanel::lines(
                "Loss",
                Unit::Number,
                "Weighted mean over the last 200 updates. If it grows by orders of magnitude, training diverges.",
                &[("loss", "max(quiver_learner_loss)")],
            ),
            DashboardPanel::lines(
                "TD error",
                Unit::Number,
                "Mean |TD| over the last 200 updates.",
                &[("|TD|", "max(quiver_learner_td_error)")],
            ),
            DashboardPanel::lines(
                "Q-value",
                Unit::Number,
                "Mean over states and actions. If it is far above any possible return, training diverges.",
                &[("Q", "max(quiver_learner_q_mean)")],
            ),
            DashboardPanel::lines(
                "Entropy of the policy",
                Unit::Of("nats"),
                "In sampled states. 0 early in training: no exploration. The logarithm of the number of actions throughout: the agent learns nothing.",
                &[("entropy", "max(quiver_learner_softmax_entropy_nats)")],
            ),
            DashboardPanel::lines(
                "Gradient norm",
                Unit::Number,
                "Mean L2 norm before clamping, over the last 200 updates.",
                &[("gradient", "max(quiver_learner_gradient_norm)")],
            ),
            DashboardPanel::lines(
                "Importance weights",
                Unit::Number,
                "Mean over batches, each divided by its largest. Near 0: a few rare items dominate each batch.",
                &[("mean weight", "max(quiver_learner_importance_weight)")],
            ),
        ],
    )
    .wide(4)
}

fn time() -> DashboardRow {
    DashboardRow::new(
        "Use of time",
        [
            DashboardPanel::stack(
                "Training thread",
                Unit::Share,
                "Blocked on a batch, gradient steps in libtorch, publishing weights, writing checkpoints. The remainder to 100% is bookkeeping.",
                &[
                    ("training", rate!("quiver_learner_update_seconds_sum")),
                    ("publishing", rate!("quiver_learner_stage_seconds_total" where "stage=\"publish\"")),
                    ("checkpoints", rate!("quiver_learner_checkpoint_seconds_sum")),
                    ("blocked on a batch", rate!("quiver_learner_batch_wait_seconds_total")),
                ],
            ),
            DashboardPanel::stack(
                "Batch preparation (parallel to training)",
                Unit::Share,
                "Sampling from shards, decoding frames, copying to tensors on the device. Near 100% together: sampling is the bottleneck.",
                &[
                    ("sampling", rate!("quiver_learner_stage_seconds_total" where "stage=\"sample\"")),
                    ("decoding", rate!("quiver_learner_stage_seconds_total" where "stage=\"decode\"")),
                    ("assembling", rate!("quiver_learner_stage_seconds_total" where "stage=\"assemble\"")),
                ],
            ),
            DashboardPanel::lines(
                "Time of an update and of a batch",
                Unit::Seconds,
                "One gradient step in libtorch, and sampling and decoding one batch. If batches take longer than updates, sampling is the bottleneck.",
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

fn batches() -> DashboardRow {
    DashboardRow::new(
        "Batches",
        [
            DashboardPanel::lines(
                "Prefetched batches",
                Unit::Of("batches"),
                "Batches ready for the training thread, and batches sampled after the one in training. Always 0: sampling is the bottleneck.",
                &[
                    ("ready", "max(quiver_learner_prefetched_batches)"),
                    ("lag", "max(quiver_learner_prefetch_lag_updates)"),
                ],
            ),
            DashboardPanel::lines(
                "Age of sampled transitions",
                Unit::Of("inserts"),
                "Mean number of inserts into the shard since the sampled transition's own insert.",
                &[("age", "max(quiver_learner_sample_age_inserts)")],
            ),
            DashboardPanel::stack(
                "Priority updates",
                Unit::Of("priorities/s"),
                "By result. Dropped: shards are slower than training; lost: a shard was unreachable.",
                &[("{result}", "sum by (result) (rate(quiver_learner_priorities_total[$__rate_interval]))")],
            ),
            DashboardPanel::lines(
                "Largest priority",
                Unit::Number,
                "Largest priority seen in any shard. It never falls; if it keeps growing, training diverges.",
                &[("largest", "max(quiver_learner_largest_priority)")],
            ),
        ],
    )
}

fn output() -> DashboardRow {
    DashboardRow::new(
        "Scores, weights and errors",
        [
            score().wide(6),
            DashboardPanel::lines(
                "Published weights",
                Unit::Of("updates"),
                "Version of the newest published weights, counted in updates. It falls when a learner resumes from a checkpoint.",
                &[("version", "max(quiver_learner_weights_version)")],
            ),
            DashboardPanel::lines(
                "Errors since start",
                Unit::Number,
                "Transitions that could not be decoded (the log names the actor), calls refused, priorities lost or dropped.",
                &[
                    ("undecodable", "sum(quiver_learner_undecodable_items_total)"),
                    ("refused", "sum(quiver_learner_requests_refused_total)"),
                    ("priorities lost", "sum(quiver_learner_priorities_total{result=~\"lost|dropped\"})"),
                ],
            ),
        ],
    )
}
