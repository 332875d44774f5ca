//! Asks shards.

use anyhow::{Context, anyhow, bail};
use proto::v1::replay_client::ReplayClient;
use proto::{Batch, StoreSpec, convert, v1};
use replay::ItemKey;
use rpc::address::Address;
use rpc::channel::{Channel, Credentials};
use rpc::inspect::{self, Seen};
use rpc::role::Role;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status};

/// Connections to shards.
pub struct Clients {
    runtime: Runtime,
    credentials: Credentials,
    shards: Vec<(Address, ReplayClient<Channel>)>,
}

impl Clients {
    pub fn connect(addresses: &[Address], credentials: &Credentials) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let _inside = runtime.enter();
        let client = |address: &Address| {
            let client = ReplayClient::new(credentials.channel(Role::Replay, address));
            (address.clone(), client.max_decoding_message_size(proto::limits::SAMPLE_BYTES_MAX))
        };
        let shards = addresses.iter().map(client).collect();
        drop(_inside);
        Ok(Self { runtime, credentials: credentials.clone(), shards })
    }

    /// Where all shards stand now; none for one that does not answer, unless none does.
    pub fn look(&self, table: &str, top: u32) -> anyhow::Result<Vec<Option<Seen>>> {
        let look = |(address, client): &(Address, ReplayClient<Channel>)| {
            let seen = self.runtime.block_on(inspect::look(address, client.clone(), table, top));
            seen.map_err(|status| self.failed(address, &status))
        };
        let seen: Vec<anyhow::Result<Seen>> = self.shards.iter().map(look).collect();
        if seen.iter().all(Result::is_err) {
            return seen.into_iter().map(|seen| seen.map(Some)).collect();
        }
        Ok(seen.into_iter().map(Result::ok).collect())
    }

    /// One item, from whichever shard has it.
    pub fn item(&self, table: &str, key: ItemKey) -> anyhow::Result<(Batch, StoreSpec)> {
        for (address, client) in &self.shards {
            let mut client = client.clone();
            let request = v1::LookRequest { table: table.into(), key: Some(convert::key_message(key)) };
            let reply = self.runtime.block_on(async { inspect::answer(client.look(request)).await });
            match reply {
                Ok(reply) => {
                    let spec = convert::store(reply.store.context("the shard does not say what it holds")?)?;
                    let batch = reply.batch.unwrap_or_default();
                    return Ok((Batch::new(batch, spec.options.stack, spec.actions)?, spec));
                }
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(self.failed(address, &status)),
            }
        }
        bail!("no such transition: it was evicted, or never was; --top lists some that are there")
    }

    fn failed(&self, address: &Address, status: &Status) -> anyhow::Error {
        anyhow!("{address}: {}", self.credentials.describe(address, status))
    }
}
