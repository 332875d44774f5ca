//! What is in a shard at one moment: for people who watch and for programs.

use std::time::{Duration, Instant};

use crate::channel::Channel;
use proto::v1::replay_client::ReplayClient;
use proto::{Batch, BatchItem, convert, v1};
use replay::{ShardStatus, TableStatus};
use serde_json::{Value, json};
use tonic::{Response, Status};

use crate::address::Address;

/// How long a shard may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One shard at one moment.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Where it is.
    pub address: Address,
    /// When it answered.
    pub at: Instant,
    /// What it says of itself.
    pub info: v1::InfoReply,
    /// What it holds.
    pub status: ShardStatus,
    /// Index of the table that was looked at.
    pub table: usize,
    /// Absent if the shard was not told yet what it holds.
    pub look: Option<v1::InspectReply>,
}

/// Looks at a table, the first one if its name is empty, and the `top` items of it.
pub async fn look(
    address: &Address,
    mut client: ReplayClient<Channel>,
    table: &str,
    top: u32,
) -> Result<Seen, Status> {
    let info = answer(client.info(v1::InfoRequest {})).await?;
    let tables = info.store.iter().flat_map(|store| &store.tables);
    let index = tables.clone().position(|known| table.is_empty() || known.name == table);
    let look = match (&info.store, index) {
        (None, _) => None,
        (Some(_), None) => {
            let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
            return Err(Status::not_found(format!("there is no table {table:?}, but {}", names.join(", "))));
        }
        (Some(_), Some(_)) => {
            let request = v1::InspectRequest { table: table.to_owned(), top };
            Some(answer(client.inspect(request)).await?)
        }
    };
    let status = info.shard.clone().map(proto::status::status).unwrap_or_default();
    Ok(Seen { address: address.clone(), at: Instant::now(), info, status, table: index.unwrap_or(0), look })
}

/// The answer to a call, if it comes in time.
pub async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    Ok(answer.map_err(|_| Status::deadline_exceeded("no answer"))??.into_inner())
}

impl Seen {
    /// The table that was looked at.
    pub fn table(&self) -> TableStatus {
        self.status.tables.get(self.table).copied().unwrap_or_default()
    }

    /// Inserts and samples per second since another look.
    pub fn rates(&self, before: &Seen) -> (f64, f64) {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-6);
        let (now, then) = (self.table().counters, before.table().counters);
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        (rate(now.inserts, then.inserts), rate(now.samples, then.samples))
    }

    /// The items on top, without frames.
    pub fn top(&self) -> Batch {
        let spec = self.info.store.clone().and_then(|store| convert::store(store).ok());
        let columns = self.look.as_ref().and_then(|look| look.top.clone());
        let batch = spec.zip(columns).map(|(spec, top)| Batch::new(top, spec.options.stack, spec.actions));
        batch.and_then(Result::ok).unwrap_or_default()
    }

    /// All of it as one object. Without a look `before` there are no rates.
    pub fn json(&self, before: Option<&Seen>) -> Value {
        let (shard, held) = (&self.status, self.table());
        let counts = held.counters;
        let rates = before.map(|before| self.rates(before));
        let histogram =
            |of: Option<v1::Histogram>| of.map(|h| json!({ "bounds": h.bounds, "counts": h.counts }));
        let look = self.look.clone().unwrap_or_default();
        let table = self.info.store.as_ref().and_then(|store| store.tables.get(self.table).cloned());
        let blocked = self.info.waiters.iter().cloned().map(proto::status::blocked);
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
            "inserts_allowed": shard.inserts_allowed,
            "chunks": shard.counters.chunks,
            "agent_steps": shard.counters.actions,
            "table": table.as_ref().map(|table| table.name.clone()),
            "capacity": table.as_ref().map(|table| table.capacity),
            "priority_exponent": table.as_ref().map(|table| table.priority_exponent),
            "items": held.items,
            "mass": held.mass,
            "largest_priority": held.largest_priority,
            "inserts": counts.inserts,
            "samples": counts.samples,
            "samples_per_insert": (counts.inserts > 0).then(|| counts.samples as f64 / counts.inserts as f64),
            "inserts_per_second": rates.map(|(inserts, _)| inserts),
            "samples_per_second": rates.map(|(_, samples)| samples),
            "evicted": counts.evicted,
            "reclaimed": counts.reclaimed_items,
            "updates": counts.updates,
            "stale_updates": counts.stale_updates,
            "waiting": blocked.map(|b| json!({ "who": b.who, "what": b.on, "seconds": b.seconds })).collect::<Vec<_>>(),
            "damaged_chunks": recovered.damaged_chunks,
            "priorities": histogram(look.priorities),
            "ages_inserts": histogram(look.ages_inserts),
            "times_sampled": histogram(look.times_sampled),
            "top": self.top().items().map(|item| item_json(&item)).collect::<Vec<_>>(),
        })
    }
}

/// A key as `quiver inspect --item` takes it.
pub fn key(item: &BatchItem<'_>) -> String {
    let key = item.key();
    format!("{}:{}:{}", key.incarnation, key.slot, key.generation)
}

/// An item in short.
pub fn item_json(item: &BatchItem<'_>) -> Value {
    json!({
        "key": key(item),
        "priority": item.priority().get(),
        "times_sampled": item.times_sampled(),
        "age_inserts": item.age_inserts(),
    })
}
