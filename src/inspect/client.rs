//! Calls to shards.

use anyhow::{Context, anyhow, bail};
use proto::v1::replay_client::ReplayClient;
use proto::{PackedBatch, StoreSpec, convert, v1};
use replay::ItemKey;
use rpc::address::Address;
use rpc::channel::{Channel, Credentials};
use rpc::inspect::{self, Inspection};
use rpc::role::Role;
use tokio::runtime::{Builder, Runtime};
use tonic::{Code, Status};

/// The error if a shard's reply lacks its configuration.
const NO_CONFIGURATION: &str =
    "the shard did not send its configuration: run the same version of quiver on both sides";

/// Clients of the shards to inspect.
pub struct Clients {
    runtime: Runtime,
    credentials: Credentials,
    shards: Vec<(Address, ReplayClient<Channel>)>,
}

impl Clients {
    pub fn connect(addresses: &[Address], credentials: &Credentials) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let client = |address: &Address| {
            let client = ReplayClient::new(credentials.channel(Role::Replay, address));
            (address.clone(), client.max_decoding_message_size(proto::limits::SAMPLE_BYTES_MAX))
        };
        let shards = addresses.iter().map(client).collect();
        drop(entered);
        Ok(Self { runtime, credentials: credentials.clone(), shards })
    }

    /// Inspects all shards; `None` for a shard that does not respond. If no shard responds, the first error.
    pub fn inspect(&self, table: &str, top: u32) -> anyhow::Result<Vec<Option<Inspection>>> {
        let inspect = |(address, client): &(Address, ReplayClient<Channel>)| {
            let inspection =
                self.runtime.block_on(inspect::inspect_table(address, client.clone(), table, top));
            inspection.map_err(|status| self.failed(address, &status))
        };
        let inspections: Vec<anyhow::Result<Inspection>> = self.shards.iter().map(inspect).collect();
        if inspections.iter().all(Result::is_err) {
            return inspections.into_iter().map(|inspection| inspection.map(Some)).collect();
        }
        Ok(inspections.into_iter().map(Result::ok).collect())
    }

    /// One item, from the shard that has it.
    pub fn item(&self, table: &str, key: ItemKey) -> anyhow::Result<(PackedBatch, StoreSpec)> {
        for (address, client) in &self.shards {
            let mut client = client.clone();
            let request = v1::GetItemRequest { table: table.into(), key: Some(convert::key_message(key)) };
            let reply = self.runtime.block_on(async { inspect::answer(client.get_item(request)).await });
            match reply {
                Ok(reply) => {
                    let spec = convert::store(reply.store.context(NO_CONFIGURATION)?)?;
                    let batch = reply.batch.unwrap_or_default();
                    return Ok((PackedBatch::new(batch, spec.options.stack, spec.actions)?, spec));
                }
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => return Err(self.failed(address, &status)),
            }
        }
        bail!(
            "no transition has this key: it was evicted, or the key is wrong; --top lists keys of stored transitions"
        )
    }

    fn failed(&self, address: &Address, status: &Status) -> anyhow::Error {
        anyhow!("{}", self.credentials.describe_at(address, status))
    }
}
