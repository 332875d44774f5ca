use prometheus::Registry;

use super::*;

#[test]
fn every_drawn_transition_is_counted_by_its_priority_and_its_age() {
    let metrics = Metrics::register(&Registry::new());
    let batch = proto::v1::Batch {
        priorities: vec![0.5, 0.5, 1e9],
        ages_inserts: vec![0, 100, 1_000],
        ..proto::v1::Batch::default()
    };
    metrics.record_sampled(&batch);
    let (priority, age) = (&metrics.sampled_priority, &metrics.sampled_age);
    assert_eq!((priority.get_sample_count(), priority.get_sample_sum()), (3, 1e9 + 1.0));
    assert_eq!((age.get_sample_count(), age.get_sample_sum()), (3, 1_100.0));
}
