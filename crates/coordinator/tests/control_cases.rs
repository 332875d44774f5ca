//! Small stories about rate control, most of them the smallest form of what the model found.

mod shard_counts;

use coordinator::control::{BlockedOn, RateController, ShardCount};
use coordinator::rate::RateLimiter;
use shard_counts::ShardCounts;

fn control(shards: usize, min_size: u64) -> RateController {
    let limiter = RateLimiter::new(Some(8.0), min_size, 32, None).unwrap();
    RateController::new(limiter, shards, 0, &[])
}

/// A shard that has inserted so many, none of them gone yet, one agent step for each.
fn counts(incarnation: u32, inserts: u64) -> ShardCounts {
    ShardCounts { incarnation, inserts, agent_steps: inserts, items: inserts, mass: inserts as f64 }
}

fn samples_until_it_waits(control: &mut RateController) -> u64 {
    let mut samples = 0;
    while control.can_sample().is_ok() {
        control.sampled(32);
        samples += 32;
    }
    samples
}

#[test]
fn a_former_life_that_comes_late_or_back_counts_nothing_twice() {
    let mut control = control(1, 100);
    control.update_status(0, counts(1, 40).status());
    control.update_status(0, counts(2, 10).status());
    control.update_status(0, counts(1, 40).status());
    assert_eq!((control.agent_steps(), control.totals()), (50, (0, 50)));
    // It is taken up where it was.
    control.update_status(0, counts(1, 45).status());
    assert_eq!((control.items(), control.allowance(0).unwrap().incarnation), (45, 1));
    control.update_status(0, counts(2, 10).status());
    control.update_status(0, counts(2, 12).status());
    assert_eq!((control.agent_steps(), control.totals(), control.items()), (57, (0, 57), 12));
}

#[test]
fn a_shard_that_changes_its_number_beside_a_stranger_counts_nothing_twice() {
    let mut control = control(2, 100);
    control.update_status(0, counts(1, 40).status());
    control.update_status(1, counts(2, 30).status());
    // A stranger has the first one's place, and the first one that of the second, which is lost.
    control.update_status(0, counts(3, 5).status());
    control.update_status(1, counts(1, 44).status());
    assert_eq!((control.agent_steps(), control.totals(), control.items()), (79, (0, 79), 49));
    // The learner starts anew.
    let limiter = RateLimiter::new(Some(8.0), 100, 32, None).unwrap();
    let mut again = RateController::new(limiter, 2, control.agent_steps(), &control.shard_counts());
    again.update_status(0, counts(2, 31).status());
    again.update_status(1, counts(1, 44).status());
    assert_eq!(again.agent_steps(), 80);
}

#[test]
fn only_so_many_former_lives_are_remembered_and_never_at_the_cost_of_those_that_answer() {
    let mut control = control(2, 100);
    control.update_status(0, counts(1, 40).status());
    for incarnation in 2..500 {
        control.update_status(1, counts(incarnation, 1).status());
    }
    assert_eq!(control.shard_counts().len(), 66);
    control.update_status(0, counts(1, 41).status());
    assert_eq!(control.agent_steps(), 41 + 498);
    // A later learner keeps it too: the shard that answered last is dropped last.
    let limiter = RateLimiter::new(Some(8.0), 100, 32, None).unwrap();
    let mut again = RateController::new(limiter, 2, control.agent_steps(), &control.shard_counts());
    again.update_status(1, counts(500, 1).status());
    again.update_status(0, counts(1, 42).status());
    assert_eq!(again.agent_steps(), 41 + 498 + 2);
}

#[test]
fn a_former_life_that_is_back_after_the_learner_too_owes_no_updates() {
    let limiter = RateLimiter::new(Some(8.0), 100, 32, None).unwrap();
    let marks = [ShardCount { incarnation: 1, agent_steps: 1_000_000 }];
    let mut control = RateController::new(limiter, 2, 1_000_000, &marks);
    control.update_status(0, counts(2, 50).status());
    control.update_status(1, counts(3, 200).status());
    assert!(samples_until_it_waits(&mut control) <= 20 + 32);
    control.update_status(0, counts(1, 1_000_008).status());
    assert_eq!(control.agent_steps(), 1_000_000 + 250 + 8);
    assert!(samples_until_it_waits(&mut control) <= 32);
    assert!(control.allowance(1).unwrap().inserts > 200, "the actors may continue");
}

#[test]
fn late_news_with_fewer_steps_and_the_same_inserts_count_no_step_twice() {
    let mut control = control(1, 100);
    let steps = |agent_steps| ShardCounts { agent_steps, ..counts(1, 10) };
    control.update_status(0, steps(15).status());
    control.update_status(0, steps(12).status());
    control.update_status(0, steps(15).status());
    assert_eq!(control.agent_steps(), 15);
    assert_eq!(control.shard_counts(), [ShardCount { incarnation: 1, agent_steps: 15 }]);
}

/// A shard is cut off while the replay fills, takes what it was granted then, and comes back when the ratio holds.
#[test]
fn what_a_shard_out_of_reach_took_while_the_replay_filled_owes_no_updates() {
    let mut control = control(2, 10_000);
    control.update_status(0, counts(1, 0).status());
    control.update_status(1, counts(2, 0).status());
    let granted = control.allowance(1).unwrap().inserts;
    assert!((5_000..5_010).contains(&granted));
    control.mark_unreachable(1);
    control.update_status(0, counts(1, 10_000).status());
    control.update_status(1, counts(2, granted).status());
    assert_eq!(control.totals(), (0, 10_000 + granted));
    // At most half an insert's worth and half a batch, which is the slack, and one more batch for rounding.
    let samples = samples_until_it_waits(&mut control);
    assert!(samples <= 20 + 32, "{samples} samples at once");
}

#[test]
fn without_a_ratio_only_filling_holds_the_learner_and_nothing_the_actors() {
    let limiter = RateLimiter::new(None, 100, 32, None).unwrap();
    let mut control = RateController::new(limiter, 2, 0, &[]);
    control.update_status(0, counts(1, 50).status());
    assert_eq!(control.can_sample(), Err(BlockedOn::Shards(vec![1])));
    control.update_status(1, counts(2, 49).status());
    assert_eq!(control.can_sample(), Err(BlockedOn::Filling { items: 99, min_size: 100 }));
    control.update_status(1, counts(2, 50).status());
    control.sampled(1 << 40);
    assert_eq!(control.can_sample(), Ok(()));
    assert!([0, 1].iter().all(|&shard| control.allowance(shard).unwrap().inserts > 1 << 60));
}

#[test]
fn a_shard_that_the_run_does_without_is_not_waited_for_and_owes_nothing_when_it_is_back() {
    let mut control = control(2, 100);
    control.update_status(0, counts(1, 200).status());
    assert_eq!(control.can_sample(), Err(BlockedOn::Shards(vec![1])));
    control.set_excluded(&[1].into());
    control.update_status(0, counts(1, 220).status());
    assert_eq!((control.can_sample(), control.masses().share(1)), (Ok(()), 0.0));
    control.set_excluded(&[].into());
    assert_eq!(control.can_sample(), Err(BlockedOn::Shards(vec![1])));
    control.update_status(1, counts(5, 1_000).status());
    let samples = samples_until_it_waits(&mut control);
    assert!(samples <= 20 + 32, "{samples} samples at once");
    control.set_excluded(&[0, 1].into());
    assert_eq!(control.can_sample(), Err(BlockedOn::Filling { items: 0, min_size: 100 }));
}

#[test]
fn a_resumed_learner_counts_only_inserts_after_its_checkpoint() {
    let limiter = RateLimiter::new(Some(8.0), 100, 32, None).unwrap();
    let marks =
        [ShardCount { incarnation: 3, agent_steps: 500 }, ShardCount { incarnation: 5, agent_steps: 400 }];
    let mut control = RateController::new(limiter, marks.len(), 1_000, &marks);
    assert_eq!(control.shard_counts(), marks);
    assert_eq!(control.allowance(0), None);
    // The first resumes, the second has restarted empty.
    control.update_status(0, counts(3, 520).status());
    control.update_status(1, counts(6, 30).status());
    assert_eq!(control.agent_steps(), 1_050);
    // The ratio begins here, whatever was inserted before.
    assert!(samples_until_it_waits(&mut control) <= 20);
}

#[test]
fn a_shard_that_counts_to_the_end_of_all_numbers_overflows_nothing() {
    let most = ShardCounts { agent_steps: u64::MAX, items: u64::MAX, ..counts(1, u64::MAX) };
    let mut control = control(2, 100);
    control.update_status(0, counts(4, 50).status());
    control.update_status(1, most.status());
    control.mark_unreachable(1);
    control.update_status(0, ShardCounts { incarnation: 2, ..most }.status());
    control.update_status(1, ShardCounts { incarnation: 3, ..most }.status());
    assert_eq!((control.items(), control.agent_steps(), control.totals().1), (u64::MAX, u64::MAX, u64::MAX));
    // No further insert can be counted, so nothing more is due; but nothing overflows.
    assert!(matches!(control.can_sample(), Err(BlockedOn::Inserts { .. })));
    assert_eq!(control.allowance(0).unwrap().inserts, u64::MAX);
}
