//! Cut connections anywhere, thousands of them, and everything arrives once.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use proto::v1;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rpc::address::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::ledger::{Actor, finish, firsts, for_each_lane};
use crate::common::*;

const CUTS: u64 = 3000;
/// Many, as each pauses before it connects again.
const ACTORS: u32 = 16;

/// Carries bytes between clients and a shard, and hangs up in the middle of them.
struct Proxy {
    address: Address,
    cuts: Arc<AtomicU64>,
    calm: Arc<AtomicBool>,
}

impl Proxy {
    fn start(directory: &Path, to: PathBuf) -> Self {
        let path = directory.join("proxy.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (cuts, calm) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let proxy = Self { address: Address::Unix(path), cuts: cuts.clone(), calm: calm.clone() };
        tokio::spawn(async move {
            let mut rng = ChaCha8Rng::seed_from_u64(3);
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let shard = UnixStream::connect(&to).await.unwrap();
                // A writer begins with all that was not acknowledged, some four thousand bytes. A connection that ends
                // within these counts as none, after which the writer pauses longer; so most end later.
                let mut bytes = |greeting: usize, most: u32| {
                    let more = 1 << rng.random_range(4..=most);
                    let early = rng.random_range(0..8) == 0;
                    if early { rng.random_range(1..greeting) } else { greeting + rng.random_range(0..more) }
                };
                let limits = (!calm.load(Ordering::Relaxed)).then(|| (bytes(4096, 13), bytes(256, 10)));
                let cuts = cuts.clone();
                tokio::spawn(async move {
                    let (mut from_client, mut to_client) = client.into_split();
                    let (mut from_shard, mut to_shard) = shard.into_split();
                    let (there, back) = limits.unwrap_or((usize::MAX, usize::MAX));
                    let cut = tokio::select! {
                        cut = carry(&mut from_client, &mut to_shard, there) => cut,
                        cut = carry(&mut from_shard, &mut to_client, back) => cut,
                    };
                    cuts.fetch_add(u64::from(cut), Ordering::Relaxed);
                });
            }
        });
        proxy
    }
}

/// Carries so many bytes, and says whether there were as many.
async fn carry(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    bytes: usize,
) -> bool {
    let (mut left, mut buffer) = (bytes, [0; 4096]);
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..read.min(left)]).await.is_err() {
            return false;
        }
        left = left.saturating_sub(read);
        if left == 0 {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_was_acknowledged_is_there_once_after_thousands_of_cuts() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s.sock");
    let running = Running::start_at(&format!("unix:{}", socket.display()), None).await;
    let mut client = running.client();
    let table = v1::Table { capacity: 1 << 18, sampler: "uniform".into(), ..table("replay") };
    let store = v1::Store { bytes_max: 128 << 20, ..store_of(vec![table]) };
    grant_store(&mut client, store, 1 << 18).await;

    let proxy = Proxy::start(directory.path(), socket);
    let began = Instant::now();
    let actors: Vec<Actor> = (0..ACTORS).map(|actor| Actor::start(&proxy.address, actor, 1)).collect();
    until(async || proxy.cuts.load(Ordering::Relaxed) >= CUTS).await;
    let seconds = began.elapsed().as_secs_f64();
    proxy.calm.store(true, Ordering::Relaxed);
    let (handed, duplicates) = finish(actors).await;

    let shard = state(&mut client).await.shard.unwrap();
    let counters = shard.counters.unwrap();
    assert_eq!((counters.chunks, counters.lost_chunks), (handed.iter().sum::<u64>(), 0));
    assert!(counters.duplicate_chunks >= duplicates && duplicates > 0, "{duplicates} of {counters:?}");
    let all = firsts(&all_items(&mut client, 0).await);
    for_each_lane(&handed, |lane, expected| {
        let there = all.get(&lane).map_or(&[][..], |firsts| firsts);
        assert_eq!(there, expected.collect::<Vec<_>>(), "actor and lane {lane:?}");
    });
    println!(
        "{:.0} cuts/s, {} chunks, of which {} sent again",
        CUTS as f64 / seconds,
        counters.chunks,
        counters.duplicate_chunks
    );
    until(async || running.metric("quiver_replay_writers_connected") == 0.0).await;
    running.stop().await;
}
