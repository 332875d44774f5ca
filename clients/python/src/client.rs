//! One shard: what it holds, and who writes and draws.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use proto::v1::replay_client::ReplayClient;
use proto::{StoreSpec, convert, v1};
use pyo3::prelude::*;
use replay::LaneKey;
use replay::control::Allowance;
use rpc::address::Address;
use rpc::backoff::Backoff;
use rpc::channel::channel;
use rpc::sampler::SamplerOptions;
use rpc::shard::{Shard, Told, describe};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::error::{answered, invalid};
use crate::sampler::{Draws, Sampler, updates};
use crate::store::{Store, index};
use crate::waiting::{Reason, runtime, wait};
use crate::writer::Writer;

/// The run of a shard that nobody else has told one.
const RUN: &str = "python";

/// A shard knows learners by their starts. Python's are all the first.
pub const LEARNER_INCARNATION: u32 = 1;

/// How often the shard is told what it holds.
const TELL_EVERY: Duration = Duration::from_secs(1);

#[pyclass(frozen, module = "quiver_replay._core")]
pub struct Client {
    address: Address,
    client: ReplayClient<Channel>,
    timeout: Duration,
    keeper: Mutex<Option<Keeper>>,
}

/// Tells the shard again and again: one that was started anew knows, and takes inserts.
struct Keeper {
    inserts_max: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[pymethods]
impl Client {
    #[new]
    fn new(address: &str, timeout: f64) -> PyResult<Self> {
        let address: Address = address.parse().map_err(invalid)?;
        let wait = Duration::try_from_secs_f64(timeout);
        let timeout = wait.map_err(|error| invalid(format!("timeout {timeout}: {error}")))?;
        let _inside = runtime()?.enter();
        let client = ReplayClient::new(channel(&address))
            .max_decoding_message_size(proto::limits::SAMPLE_BYTES_MAX)
            .max_encoding_message_size(proto::limits::INSERT_BYTES_MAX);
        Ok(Self { address, client, timeout, keeper: Mutex::new(None) })
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
        let told = Told { run, learner_incarnation: LEARNER_INCARNATION, spec };
        // The first time by hand, for its errors.
        let request = v1::GrantRequest {
            caller: Some(proto::caller(&told.run)),
            learner_incarnation: told.learner_incarnation,
            store: Some(convert::store_message(&told.spec)),
            ..v1::GrantRequest::default()
        };
        self.ask(py, |mut client| {
            let request = request.clone();
            async move { client.grant(request).await }
        })?;
        let (allow, inserts) = watch::channel(inserts_max.unwrap_or(u64::MAX));
        let runtime = runtime()?;
        let _inside = runtime.enter();
        let task = runtime.spawn(keep(Shard::new(self.address.clone(), told, 0), inserts));
        *self.keeper() = Some(Keeper { inserts_max: allow, task });
        Ok(())
    }

    fn allow(&self, inserts_max: Option<u64>) -> PyResult<()> {
        let keeper = self.keeper();
        let keeper =
            keeper.as_ref().ok_or_else(|| invalid("allow() is for the client that called create()"))?;
        keeper.inserts_max.send_replace(inserts_max.unwrap_or(u64::MAX));
        Ok(())
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
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
        let key = LaneKey { actor, incarnation: incarnation.unwrap_or_else(clock), lane };
        Writer::new(self.address.clone(), &run, key, &spec, chunk_steps)
    }

    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn sampler(
        &self,
        py: Python<'_>,
        table: Option<&str>,
        batch_size: usize,
        length: usize,
        min_size: u64,
        prefetch: usize,
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
        if prefetch > 64 {
            return Err(invalid(format!("prefetch is {prefetch}, must be 64 or less")));
        }
        let options = SamplerOptions { table, batch: batch_size, stratified, prefetch, seed };
        let draws =
            Draws { address: self.address.clone(), client: self.client.clone(), run, options, min_size };
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
        let (updates, incarnation) = updates(table, &keys, &priorities)?;
        let request = v1::UpdatePrioritiesRequest {
            caller: Some(proto::caller(&info.run)),
            learner_incarnation: LEARNER_INCARNATION,
            updates: Some(convert::updates_message(&updates, incarnation)),
        };
        let gone = updates.priorities.iter().filter(|(key, _)| key.incarnation != incarnation).count() as u64;
        let reply = self
            .ask(py, |mut client| {
                let request = request.clone();
                async move { client.update_priorities(request).await }
            })?
            .into_inner();
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
        self.ask(py, |mut client| {
            let request = request.clone();
            async move { client.configure(request).await }
        })
        .map(drop)
    }

    fn inspect(&self, py: Python<'_>, table: Option<&str>, top: u32) -> PyResult<String> {
        let table = table.unwrap_or_default();
        let seen = self.ask(py, |client| rpc::inspect::look(&self.address, client, table, top))?;
        Ok(seen.json(None).to_string())
    }

    fn snapshot(&self, py: Python<'_>, path: std::path::PathBuf) -> PyResult<u64> {
        let reason = Reason::new(format!("the snapshot of the shard at {}", self.address));
        let client = self.client.clone();
        let saved = wait(py, None, &reason, rpc::snapshot::save(client, &path, |_| ()))?;
        saved.map_err(|error| match error {
            rpc::snapshot::SnapshotError::Shard(status) => answered(&self.address, &status),
            rpc::snapshot::SnapshotError::File(error) => error.into(),
        })
    }

    fn close(&self) {
        self.keeper().take();
    }
}

impl Client {
    fn keeper(&self) -> std::sync::MutexGuard<'_, Option<Keeper>> {
        self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The answer to one call. A shard that can't be reached may be starting: it is tried again until time is up.
    fn ask<T: Send, F: Future<Output = Result<T, Status>> + Send>(
        &self,
        py: Python<'_>,
        call: impl Fn(ReplayClient<Channel>) -> F + Send + Sync,
    ) -> PyResult<T> {
        let until = Instant::now().checked_add(self.timeout);
        let reason = Reason::new(format!("the shard at {}", self.address));
        let attempts = async {
            let mut backoff = Backoff::new(0);
            loop {
                let answer = call(self.client.clone()).await;
                let pause = backoff.next();
                match answer {
                    Err(status)
                        if status.code() == Code::Unavailable
                            && until.is_none_or(|until| Instant::now() + pause < until) =>
                    {
                        reason.is(format!("the shard at {}: {}", self.address, describe(&status)));
                        sleep(pause).await;
                    }
                    answer => return answer,
                }
            }
        };
        wait(py, until, &reason, attempts)?.map_err(|status| answered(&self.address, &status))
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

/// Tells a shard what it holds and how much it may take in, for as long as the client lives.
async fn keep(mut shard: Shard, mut inserts_max: watch::Receiver<u64>) {
    loop {
        // What is in the way is said by those who need the shard.
        if let Ok(news) = shard.grant(None, 0, Duration::ZERO, false).await {
            let inserts = *inserts_max.borrow_and_update();
            let allowance = Allowance { incarnation: news.incarnation, inserts };
            shard.grant(Some(allowance), 0, Duration::ZERO, false).await.ok();
        }
        tokio::select! {
            () = sleep(TELL_EVERY) => {}
            changed = inserts_max.changed() => if changed.is_err() { return },
        }
    }
}
