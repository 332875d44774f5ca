//! The status that shards report, as the learner takes it in: several shards' statuses go into the control of the ratio.
//!
//! Input: statuses: which of two shards and what else happens (1 byte), a shard's status (a piece).

use coordinator::control::{RateController, ShardCount};
use coordinator::rate::RateLimiter;
use prost::Message;
use proto::v1;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::input::{Input, piece};

const SHARDS: usize = 2;
const BATCH: u64 = 4;
const STATUSES_MAX: usize = 64;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let limiter = RateLimiter::new(Some(2.0), 8, BATCH, None).expect("a sound ratio");
    let marks = [ShardCount { incarnation: 3, agent_steps: 100 }];
    let mut control = RateController::new(limiter, SHARDS, 100, &marks);
    let mut count = 0;
    while !input.is_empty() && count < STATUSES_MAX {
        count += 1;
        let what = input.byte();
        let shard = usize::from(what) % SHARDS;
        let Ok(status) = v1::ShardStatus::decode(input.piece()) else { continue };
        match what >> 6 {
            0 => control.mark_unreachable(shard),
            _ => control.update_status(shard, proto::status::status(status)),
        }
        check(&mut control);
    }
}

/// Every query has a result for any report of the shards.
fn check(control: &mut RateController) {
    if control.can_sample().is_ok() {
        control.sampled(BATCH);
    }
    for shard in 0..SHARDS {
        let known = control.allowance(shard).map_or(0, |allowance| allowance.inserts);
        assert!(control.until_inserts(shard) > 0 || known == 0);
    }
    assert!(control.shard_counts().len() <= SHARDS + 64);
    assert!(control.ratio().is_none_or(|ratio| ratio.is_finite()));
    let _ = (control.items(), control.agent_steps(), control.totals());
    let masses = control.masses();
    if masses.is_empty() {
        return;
    }
    let share: f64 = (0..SHARDS).map(|shard| masses.share(shard)).sum();
    assert!((share - 1.0).abs() < 1e-6, "shares add up to {share}");
    for point in masses.draw(8, true, &mut ChaCha8Rng::seed_from_u64(1)) {
        assert!(point.shard < SHARDS && (0.0..1.0).contains(&point.within));
        assert!(masses.share(point.shard) > 0.0);
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let status = |incarnation: u32, inserts: u64, mass: f64| {
        let table = v1::TableStatus { items: inserts.min(50), mass, inserts, ..v1::TableStatus::default() };
        let counters = v1::Counters { agent_steps: inserts + 3, inserts, ..v1::Counters::default() };
        let (counters, tables) = (Some(counters), vec![table]);
        let shard =
            v1::ShardStatus { id: "a".into(), incarnation, counters, tables, ..v1::ShardStatus::default() };
        piece(&shard.encode_to_vec())
    };
    let statuses = [
        (64, status(3, 5, 2.5)),
        (65, status(4, 9, 4.0)),
        (64, status(3, 40, 20.0)),
        (1, status(4, 9, 4.0)),
        (65, status(5, 2, 1.0)),
        (64, status(6, 70, 30.0)),
    ];
    let all = |count: usize| {
        statuses[..count].iter().flat_map(|(what, status)| [&[*what][..], status].concat()).collect()
    };
    vec![all(1), all(3), all(6)]
}
