//! One shard: what it holds, and who writes and draws.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use proto::v1::replay_client::ReplayClient;
use proto::{StoreSpec, convert, v1};
use pyo3::prelude::*;
use rpc::address::Address;
use rpc::backoff::Backoff;
use rpc::channel::{Channel, Credentials};
use rpc::role::Role;
use rpc::sampler::SamplerOptions;
use rpc::shard::is_broken;
use rpc::snapshot::SnapshotError;
use tokio::time::sleep;
use tonic::Status;

use crate::error::{answered, invalid};
use crate::keeper::{self, Keeper, LEARNER_INCARNATION, Told};
use crate::lease::Lease;
use crate::sampler::{Draws, Sampler, updates};
use crate::store::{Store, index};
use crate::waiting::{Reason, deadline, runtime, wait};
use crate::writer::Writer;

/// The run of a shard that nobody else has told one.
const RUN: &str = "python";

/// Batches under way, unless someone says otherwise.
const PREFETCH: usize = 8;
const PREFETCH_MAX: usize = 64;

#[pyclass(frozen, module = "quiver_replay._core")]
pub struct Client {
    address: Address,
    credentials: Credentials,
    client: ReplayClient<Channel>,
    timeout: f64,
    keeper: Mutex<Option<Arc<Keeper>>>,
}

#[pymethods]
impl Client {
    #[new]
    fn new(address: &str, timeout: f64, secrets: Option<PathBuf>) -> PyResult<Self> {
        let address: Address = address.parse().map_err(invalid)?;
        deadline(Some(timeout))?;
        let credentials = Credentials::load(secrets.as_deref()).map_err(invalid)?;
        let _inside = runtime()?.enter();
        let client = ReplayClient::new(credentials.channel(Role::Replay, &address))
            .max_decoding_message_size(proto::limits::SAMPLE_BYTES_MAX)
            .max_encoding_message_size(proto::limits::INSERT_BYTES_MAX);
        Ok(Self { address, credentials, client, timeout, keeper: Mutex::new(None) })
    }

    #[getter]
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn create(
        &self,
        py: Python<'_>,
        store: Store,
        run: Option<String>,
        inserts_max: Option<u64>,
    ) -> PyResult<()> {
        let spec = store.spec()?;
        let known = self.info(py)?.run;
        let run = run.or_else(|| (!known.is_empty()).then_some(known)).unwrap_or_else(|| RUN.into());
        let told = Told { run, spec, inserts_max: inserts_max.unwrap_or(u64::MAX) };
        self.ask(py, |mut client| {
            let told = &told;
            async move {
                keeper::grant(&mut client, told, true, None).await?;
                keeper::allow(&mut client, told).await
            }
        })?;
        let _inside = runtime()?.enter();
        // The former one, if there is one, ends.
        *self.keeper() = Some(Arc::new(Keeper::start(self.client.clone(), told)));
        Ok(())
    }

    fn allow(&self, py: Python<'_>, inserts_max: Option<u64>) -> PyResult<()> {
        let keeper = self.keeper().clone();
        let keeper = keeper.ok_or_else(|| invalid("allow() is for the client that called create()"))?;
        keeper.tell(|told| told.inserts_max = inserts_max.unwrap_or(u64::MAX));
        let told = keeper.told();
        self.ask(py, |mut client| {
            let told = &told;
            async move { keeper::allow(&mut client, told).await }
        })
    }

    fn writer(
        &self,
        py: Python<'_>,
        actor: u32,
        lane: u32,
        incarnation: Option<u64>,
        chunk_steps: usize,
        frame_bytes: usize,
    ) -> PyResult<Writer> {
        let (run, spec) = self.spec(py, frame_bytes)?;
        let lease = Lease::take(&self.address.to_string(), actor, lane, incarnation).ok_or_else(|| {
            invalid(format!(
                "actor {actor}, lane {lane} has a writer in this process: close it, or take another lane"
            ))
        })?;
        let (shard, keeper) = ((self.address.clone(), self.credentials.clone()), self.keeper().clone());
        Writer::new(shard, &run, lease, &spec, chunk_steps, keeper)
    }

    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn sampler(
        &self,
        py: Python<'_>,
        table: Option<&str>,
        batch_size: usize,
        length: usize,
        min_size: u64,
        prefetch: Option<usize>,
        stratified: bool,
        seed: u64,
        frame_bytes: usize,
    ) -> PyResult<Sampler> {
        let (run, spec) = self.spec(py, frame_bytes)?;
        let table = index(&spec.options.tables, table)?;
        let capacity = spec.options.tables[table].capacity as u64;
        if min_size > capacity {
            return Err(invalid(format!("min_size is {min_size}, but the table keeps {capacity} items")));
        }
        if batch_size == 0 || batch_size > proto::limits::POINTS_MAX {
            return Err(invalid(format!(
                "batch_size is {batch_size}, must be 1 to {}",
                proto::limits::POINTS_MAX
            )));
        }
        // What is drawn ahead from a table that uses its items up is gone if nobody takes it.
        let uses_up = spec.options.tables[table].max_times_sampled > 0;
        let prefetch = prefetch.unwrap_or(if uses_up { 0 } else { PREFETCH });
        if prefetch > PREFETCH_MAX {
            return Err(invalid(format!("prefetch is {prefetch}, must be {PREFETCH_MAX} or less")));
        }
        let options = SamplerOptions { table, batch: batch_size, stratified, prefetch, seed };
        let (address, client) = (self.address.clone(), self.client.clone());
        let credentials = self.credentials.clone();
        let draws =
            Draws { address, credentials, client, run, options, min_size, keeper: self.keeper().clone() };
        Ok(Sampler::new(draws, &spec, length))
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        table: Option<&str>,
        keys: PyReadonlyArray2<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<(u64, u64)> {
        let info = self.info(py)?;
        let store = info.store.ok_or_else(|| self.untold())?;
        let spec = convert::store(store).map_err(invalid)?;
        let table = index(&spec.options.tables, table)?;
        let incarnation = info.shard.map_or(0, |shard| shard.incarnation);
        let updates = updates(table, &keys, &priorities)?;
        let request = v1::UpdatePrioritiesRequest {
            caller: Some(proto::caller(&info.run)),
            learner_incarnation: LEARNER_INCARNATION,
            updates: Some(convert::updates_message(&updates, incarnation)),
        };
        let gone = updates.priorities.iter().filter(|(key, _)| key.incarnation != incarnation).count() as u64;
        let reply = self.ask(py, |mut client| {
            let request = request.clone();
            async move { Ok(client.update_priorities(request).await?.into_inner()) }
        })?;
        Ok((reply.applied, reply.stale + gone))
    }

    fn configure(
        &self,
        py: Python<'_>,
        table: Option<String>,
        capacity: Option<u64>,
        priority_exponent: Option<f64>,
    ) -> PyResult<()> {
        let table = table.unwrap_or_default();
        let request = v1::ConfigureRequest { table, capacity, priority_exponent };
        let reply = self.ask(py, |mut client| {
            let request = request.clone();
            async move { Ok(client.configure(request).await?.into_inner()) }
        })?;
        // A shard that forgets shall be told what it is now.
        if let (Some(keeper), Some(Ok(spec))) = (&*self.keeper(), reply.store.map(convert::store)) {
            keeper.tell(|told| told.spec = spec);
        }
        Ok(())
    }

    fn inspect(&self, py: Python<'_>, table: Option<&str>, top: u32) -> PyResult<String> {
        let table = table.unwrap_or_default();
        let seen = self.ask(py, |client| rpc::inspect::look(&self.address, client, table, top))?;
        Ok(seen.json(None).to_string())
    }

    fn snapshot(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        // The first call is tried again if the shard is not there.
        self.info(py)?;
        let reason = || format!("the snapshot of the shard at {}", self.address);
        let saved = wait(py, None, reason, rpc::snapshot::save(self.client.clone(), &path, |_| ()))?;
        saved.map_err(|error| match error {
            SnapshotError::Shard(status) => answered(&self.address, &status),
            SnapshotError::File(error) => error.into(),
        })
    }

    fn close(&self) {
        if let Some(keeper) = self.keeper().take() {
            keeper.stop();
        }
    }
}

impl Client {
    fn keeper(&self) -> MutexGuard<'_, Option<Arc<Keeper>>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to one call. A shard that can't be reached may be starting: it is tried again until time is up.
    fn ask<T: Send, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        py: Python<'_>,
        call: impl Fn(ReplayClient<Channel>) -> F + Send + Sync,
    ) -> PyResult<T> {
        let until = deadline(Some(self.timeout))?;
        let reason = Reason::new(format!("the shard at {}", self.address));
        let attempts = async {
            let mut backoff = Backoff::new(0);
            loop {
                let answer = call(self.client.clone()).await;
                let pause = backoff.next();
                match answer {
                    Err(status)
                        if is_broken(&status) && until.is_none_or(|until| Instant::now() + pause < until) =>
                    {
                        reason.is(format!(
                            "the shard at {}: {}",
                            self.address,
                            self.credentials.describe(&self.address, &status)
                        ));
                        sleep(pause).await;
                    }
                    answer => return answer,
                }
            }
        };
        wait(py, until, || reason.get(), attempts)?.map_err(|status| answered(&self.address, &status))
    }

    fn info(&self, py: Python<'_>) -> PyResult<v1::InfoReply> {
        self.ask(py, |mut client| async move { Ok(client.info(v1::InfoRequest {}).await?.into_inner()) })
    }

    /// The run and what the shard holds, if it is of frames as large as ours.
    fn spec(&self, py: Python<'_>, frame_bytes: usize) -> PyResult<(String, StoreSpec)> {
        let info = self.info(py)?;
        let spec = convert::store(info.store.ok_or_else(|| self.untold())?).map_err(invalid)?;
        let theirs = spec.options.frame_bytes;
        if theirs != frame_bytes {
            return Err(invalid(format!(
                "frames of this client's shape have {frame_bytes} bytes, those in the shard at {} {theirs}",
                self.address
            )));
        }
        Ok((info.run, spec))
    }

    fn untold(&self) -> PyErr {
        invalid(format!(
            "nobody has told the shard at {} yet what it holds: call create() first",
            self.address
        ))
    }
}
