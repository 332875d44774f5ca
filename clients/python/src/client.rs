//! The client of one shard: configures it and creates writers and samplers.
#![allow(clippy::disallowed_methods, reason = "Python callers wait in wall-clock time")]

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
use rpc::sampler::SampleStreamOptions;
use rpc::shard::is_broken;
use rpc::snapshot::SnapshotError;
use tokio::time::sleep;
use tonic::Status;

use crate::error::{answered, invalid};
use crate::keeper::{self, DesiredState, Keeper, LEARNER_INCARNATION};
use crate::lease::Lease;
use crate::sampler::{Sampler, SamplerConfig, updates};
use crate::store::{Store, index};
use crate::waiting::{Reason, deadline, runtime, wait};
use crate::writer::Writer;

/// Default run of a shard that is not configured yet.
const RUN: &str = "python";

/// Default number of batches in flight.
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
        let desired = DesiredState { run, spec, inserts_max: inserts_max.unwrap_or(u64::MAX) };
        self.ask(py, |mut client| {
            let desired = &desired;
            async move {
                keeper::grant(&mut client, desired, true, None).await?;
                keeper::allow(&mut client, desired).await
            }
        })?;
        let _inside = runtime()?.enter();
        // Replacing the previous keeper, if any, stops it.
        *self.keeper() = Some(Arc::new(Keeper::start(self.client.clone(), desired)));
        Ok(())
    }

    fn allow(&self, py: Python<'_>, inserts_max: Option<u64>) -> PyResult<()> {
        let keeper = self.keeper().clone();
        let keeper =
            keeper.ok_or_else(|| invalid("allow() works only on the client that called create()"))?;
        keeper.update(|desired| desired.inserts_max = inserts_max.unwrap_or(u64::MAX));
        let desired = keeper.desired();
        self.ask(py, |mut client| {
            let desired = &desired;
            async move { keeper::allow(&mut client, desired).await }
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
                "actor {actor}, lane {lane} already has a writer in this process: close it, or use another lane"
            ))
        })?;
        let (shard, keeper) = ((self.address.clone(), self.credentials.clone()), self.keeper().clone());
        Writer::new(shard, &run, lease, &spec, chunk_steps, keeper)
    }

    #[expect(clippy::too_many_arguments, reason = "Python calls use keyword arguments")]
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
            return Err(invalid(format!(
                "min_size is {min_size}, must be at most the table's capacity {capacity}"
            )));
        }
        if batch_size == 0 || batch_size > proto::limits::POINTS_MAX {
            return Err(invalid(format!(
                "batch_size is {batch_size}, must be 1 to {}",
                proto::limits::POINTS_MAX
            )));
        }
        // A table with `max_times_sampled` removes sampled items, so unused prefetched batches would lose items.
        let removes_sampled = spec.options.tables[table].max_times_sampled > 0;
        let prefetch = prefetch.unwrap_or(if removes_sampled { 0 } else { PREFETCH });
        if prefetch > PREFETCH_MAX {
            return Err(invalid(format!("prefetch is {prefetch}, must be {PREFETCH_MAX} or less")));
        }
        let options = SampleStreamOptions { table, batch: batch_size, stratified, prefetch, seed };
        let (address, client) = (self.address.clone(), self.client.clone());
        let credentials = self.credentials.clone();
        let keeper = self.keeper().clone();
        let config = SamplerConfig { address, credentials, client, run, options, min_size, keeper };
        Ok(Sampler::new(config, &spec, length))
    }

    fn update_priorities(
        &self,
        py: Python<'_>,
        table: Option<&str>,
        keys: PyReadonlyArray2<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<(u64, u64)> {
        let info = self.info(py)?;
        let store = info.store.ok_or_else(|| self.not_configured())?;
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
        // The keeper must restore the new configuration if the shard restarts empty.
        if let (Some(keeper), Some(Ok(spec))) = (&*self.keeper(), reply.store.map(convert::store)) {
            keeper.update(|desired| desired.spec = spec);
        }
        Ok(())
    }

    fn inspect(&self, py: Python<'_>, table: Option<&str>, top: u32) -> PyResult<String> {
        let table = table.unwrap_or_default();
        let inspection =
            self.ask(py, |client| rpc::inspect::inspect_table(&self.address, client, table, top))?;
        Ok(inspection.json(None).to_string())
    }

    fn snapshot(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        // `info` retries while the shard is unreachable; the snapshot call does not.
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

    /// The answer to one call. An unreachable shard may be starting, so the call is retried until the timeout.
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
                        reason.set(format!(
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

    /// The shard's run and specification. An error if its frame size differs from ours.
    fn spec(&self, py: Python<'_>, frame_bytes: usize) -> PyResult<(String, StoreSpec)> {
        let info = self.info(py)?;
        let spec = convert::store(info.store.ok_or_else(|| self.not_configured())?).map_err(invalid)?;
        let theirs = spec.options.frame_bytes;
        if theirs != frame_bytes {
            return Err(invalid(format!(
                "frames of this client's shape have {frame_bytes} bytes, but the shard at {} has frames of {theirs} bytes",
                self.address
            )));
        }
        Ok((info.run, spec))
    }

    fn not_configured(&self) -> PyErr {
        invalid(format!("the shard at {} is not configured yet: call create() first", self.address))
    }
}
