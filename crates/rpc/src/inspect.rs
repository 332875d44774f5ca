//! Inspects one shard: its status and its top items, for `quiver inspect` and for programs.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

use std::time::{Duration, Instant};

use crate::channel::Channel;
use proto::v1::replay_client::ReplayClient;
use proto::{BatchItem, PackedBatch, convert, v1};
use replay::{ShardStatus, TableStatus};
use serde_json::{Value, json};
use tonic::{Response, Status};

use crate::address::Address;

/// How long a shard may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The state of one shard at one moment.
#[derive(Clone, Debug)]
pub struct Inspection {
    pub address: Address,
    /// When the shard answered.
    pub at: Instant,
    /// The shard's description of itself.
    pub info: v1::InfoReply,
    pub status: ShardStatus,
    /// Index of the inspected table.
    pub table: usize,
    /// Absent if the shard is not configured yet.
    pub contents: Option<v1::InspectReply>,
}

/// Inspects a table and its `top` items. An empty name selects the first table.
pub async fn inspect_table(
    address: &Address,
    mut client: ReplayClient<Channel>,
    table: &str,
    top: u32,
) -> Result<Inspection, Status> {
    let info = answer(client.info(v1::InfoRequest {})).await?;
    let tables = info.store.iter().flat_map(|store| &store.tables);
    let index = tables.clone().position(|known| table.is_empty() || known.name == table);
    let contents = match (&info.store, index) {
        (None, _) => None,
        (Some(_), None) => {
            let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
            return Err(Status::not_found(format!(
                "no table {table:?}; this shard has {}",
                names.join(", ")
            )));
        }
        (Some(_), Some(_)) => {
            let request = v1::InspectRequest { table: table.to_owned(), top };
            Some(answer(client.inspect(request)).await?)
        }
    };
    let status = info.shard.clone().map(proto::status::status).unwrap_or_default();
    Ok(Inspection {
        address: address.clone(),
        at: Instant::now(),
        info,
        status,
        table: index.unwrap_or(0),
        contents,
    })
}

/// The answer to a call, or `DEADLINE_EXCEEDED` after 10 s.
pub async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    let late = |_| Status::deadline_exceeded(format!("no answer within {} s", PATIENCE.as_secs()));
    Ok(answer.map_err(late)??.into_inner())
}

impl Inspection {
    /// Status of the inspected table.
    pub fn table(&self) -> TableStatus {
        self.status.tables.get(self.table).copied().unwrap_or_default()
    }

    /// Inserts and samples per second since an earlier inspection.
    pub fn rates(&self, before: &Inspection) -> (f64, f64) {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-6);
        let (now, then) = (self.table().counters, before.table().counters);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        (rate(now.inserts, then.inserts), rate(now.samples, then.samples))
    }

    /// The top items, without frames.
    pub fn top(&self) -> PackedBatch {
        let spec = self.info.store.clone().and_then(|store| convert::store(store).ok());
        let columns = self.contents.as_ref().and_then(|contents| contents.top.clone());
        let batch =
            spec.zip(columns).map(|(spec, top)| PackedBatch::new(top, spec.options.stack, spec.actions));
        batch.and_then(Result::ok).unwrap_or_default()
    }

    /// The inspection as one JSON object. Rates need an earlier inspection `before`; without it they are null.
    pub fn json(&self, before: Option<&Inspection>) -> Value {
        let (shard, held) = (&self.status, self.table());
        let counts = held.counters;
        let rates = before.map(|before| self.rates(before));
        let histogram =
            |of: Option<v1::Histogram>| of.map(|h| json!({ "bounds": h.bounds, "counts": h.counts }));
        let contents = self.contents.clone().unwrap_or_default();
        let table = self.info.store.as_ref().and_then(|store| store.tables.get(self.table).cloned());
        let blocked = self.info.blocked_callers.iter().cloned().map(proto::status::blocked);
        let recovered = self.info.recovered.unwrap_or_default();
        json!({
            "address": self.address.to_string(),
            "id": shard.id,
            "incarnation": shard.incarnation,
            "run": self.info.run,
            "durable": self.info.durable,
            "uptime_seconds": self.info.uptime_seconds,
            "bytes_used": shard.bytes_used,
            "bytes_max": self.info.store.as_ref().map(|store| store.bytes_max),
            "inserts_allowed": shard.allowance,
            "chunks": shard.counters.chunks,
            "agent_steps": shard.counters.agent_steps,
            "table": table.as_ref().map(|table| table.name.clone()),
            "capacity": table.as_ref().map(|table| table.capacity),
            "priority_exponent": table.as_ref().map(|table| table.priority_exponent),
            "items": held.items,
            "mass": held.mass,
            "largest_priority": held.largest_priority,
            "inserts": counts.inserts,
            "samples": counts.samples,
            "samples_per_insert_with_filling": (counts.inserts > 0).then(|| counts.samples as f64 / counts.inserts as f64),
            "inserts_per_second": rates.map(|(inserts, _)| inserts),
            "samples_per_second": rates.map(|(_, samples)| samples),
            "evicted": counts.evicted,
            "reclaimed": counts.reclaimed_items,
            "updates": counts.updates,
            "stale_updates": counts.stale_updates,
            "waiting": blocked.map(|b| json!({ "who": b.caller, "what": b.blocked_on, "seconds": b.blocked_seconds })).collect::<Vec<_>>(),
            "damaged_chunks": recovered.damaged_chunks,
            "priorities": histogram(contents.priorities),
            "ages_inserts": histogram(contents.ages_inserts),
            "times_sampled": histogram(contents.times_sampled),
            "top": self.top().items().map(|item| item_json(&item)).collect::<Vec<_>>(),
        })
    }
}

/// A key in the format that `quiver inspect --item` accepts.
pub fn key(item: &BatchItem<'_>) -> String {
    let key = item.key();
    format!("{}:{}:{}", key.incarnation, key.slot, key.generation)
}

/// Key, priority, sample count and age of an item.
pub fn item_json(item: &BatchItem<'_>) -> Value {
    json!({
        "key": key(item),
        "priority": item.priority().get(),
        "times_sampled": item.times_sampled(),
        "age_inserts": item.age_inserts(),
    })
}
