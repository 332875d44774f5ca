//! Asks shards.

use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use proto::v1::replay_client::ReplayClient;
use proto::{Batch, StoreSpec, convert, v1};
use replay::ItemKey;
use rpc::address::Address;
use rpc::channel::channel;
use rpc::shard::describe;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// How long a shard may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections to shards.
pub struct Clients {
    runtime: Runtime,
    shards: Vec<(Address, ReplayClient<Channel>)>,
}

/// One shard at one moment.
pub struct Seen {
    pub address: Address,
    pub at: Instant,
    pub info: v1::InfoReply,
    pub table: usize,
    /// Absent if the shard was not told yet what it holds.
    pub look: Option<v1::InspectReply>,
}

impl Clients {
    pub fn connect(addresses: &[Address]) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let _inside = runtime.enter();
        let client = |address: &Address| {
            let client = ReplayClient::new(channel(address));
            (address.clone(), client.max_decoding_message_size(proto::limits::SAMPLE_BYTES_MAX))
        };
        let shards = addresses.iter().map(client).collect();
        drop(_inside);
        Ok(Self { runtime, shards })
    }

    /// Where all shards stand now.
    pub fn look(&self, table: &str, top: u32) -> anyhow::Result<Vec<Seen>> {
        let look = |(address, client): &(Address, ReplayClient<Channel>)| {
            self.runtime.block_on(look(address, client.clone(), table, top))
        };
        self.shards.iter().map(look).collect()
    }

    /// One item, from whichever shard has it.
    pub fn item(&self, table: &str, key: ItemKey) -> anyhow::Result<(Batch, StoreSpec)> {
        for (address, client) in &self.shards {
            let mut client = client.clone();
            let request = v1::LookRequest { table: table.into(), key: Some(convert::key_message(key)) };
            let reply = self.runtime.block_on(async { answer(client.look(request)).await });
            match reply {
                Ok(reply) => {
                    let spec = convert::store(reply.store.context("the shard does not say what it holds")?)?;
                    let batch = reply.batch.unwrap_or_default();
                    return Ok((Batch::new(batch, spec.options.stack, spec.actions)?, spec));
                }
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(failed(address, &status)),
            }
        }
        bail!("no such transition: it was evicted, or never was; --top lists some that are there")
    }
}

async fn look(
    address: &Address,
    mut client: ReplayClient<Channel>,
    table: &str,
    top: u32,
) -> anyhow::Result<Seen> {
    let cannot = |status: Status| failed(address, &status);
    let info = answer(client.info(v1::InfoRequest {})).await.map_err(cannot)?;
    let tables = info.store.iter().flat_map(|store| &store.tables);
    let index = tables.clone().position(|known| table.is_empty() || known.name == table);
    let look = match (&info.store, index) {
        (None, _) => None,
        (Some(_), None) => {
            let names: Vec<&str> = tables.map(|table| table.name.as_str()).collect();
            bail!("{address} has no table {table:?}, but {}", names.join(", "));
        }
        (Some(_), Some(_)) => {
            let request = v1::InspectRequest { table: table.to_owned(), top };
            Some(answer(client.inspect(request)).await.map_err(cannot)?)
        }
    };
    Ok(Seen { address: address.clone(), at: Instant::now(), info, table: index.unwrap_or(0), look })
}

async fn answer<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Result<T, Status> {
    let answer = tokio::time::timeout(PATIENCE, call).await;
    Ok(answer.map_err(|_| Status::deadline_exceeded("no answer"))??.into_inner())
}

fn failed(address: &Address, status: &Status) -> anyhow::Error {
    anyhow!("{address}: {}", describe(status))
}

impl Seen {
    pub fn standing(&self) -> v1::Shard {
        self.info.shard.clone().unwrap_or_default()
    }

    pub fn counts(&self) -> v1::TableStanding {
        self.standing().tables.get(self.table).copied().unwrap_or_default()
    }

    /// Inserts and samples per second since another look.
    pub fn rates(&self, before: &Seen) -> (f64, f64) {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-6);
        let (now, then) = (self.counts(), before.counts());
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

    pub fn json(&self, before: &Seen) -> Value {
        let (shard, counts) = (self.standing(), self.counts());
        let totals = shard.counters.unwrap_or_default();
        let (inserts, samples) = self.rates(before);
        let histogram =
            |of: Option<v1::Histogram>| of.map(|h| json!({ "bounds": h.bounds, "counts": h.counts }));
        let look = self.look.clone().unwrap_or_default();
        let table = self.info.store.as_ref().and_then(|store| store.tables.get(self.table).cloned());
        let waiters = self.info.waiters.iter();
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
            "chunks": totals.chunks,
            "agent_steps": totals.actions,
            "table": table.as_ref().map(|table| table.name.clone()),
            "capacity": table.as_ref().map(|table| table.capacity),
            "priority_exponent": table.as_ref().map(|table| table.priority_exponent),
            "items": counts.items,
            "mass": counts.mass,
            "largest_priority": counts.largest_priority,
            "inserts": counts.inserts,
            "samples": counts.samples,
            "samples_per_insert": (counts.inserts > 0).then(|| counts.samples as f64 / counts.inserts as f64),
            "inserts_per_second": inserts,
            "samples_per_second": samples,
            "evicted": counts.evicted,
            "reclaimed": counts.reclaimed_items,
            "updates": counts.updates,
            "stale_updates": counts.stale_updates,
            "waiting": waiters.map(|w| json!({ "who": w.who, "what": w.what, "seconds": w.seconds })).collect::<Vec<_>>(),
            "damaged_chunks": recovered.damaged_chunks,
            "priorities": histogram(look.priorities),
            "ages_inserts": histogram(look.ages_inserts),
            "times_sampled": histogram(look.times_sampled),
            "top": self.top().items().map(|item| super::text::key_json(&item)).collect::<Vec<_>>(),
        })
    }
}
