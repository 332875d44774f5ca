//! Samples batches into preallocated numpy arrays.
#![allow(clippy::disallowed_methods, reason = "Python callers wait in wall-clock time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyReadwriteArray2};
use proto::v1::replay_client::ReplayClient;
use proto::{PackedBatch, StoreSpec, Updates, v1};
use pyo3::prelude::*;
use replay::ItemKey;
use replay::codec::Decoder;
use rpc::address::Address;
use rpc::backoff::Backoff;
use rpc::channel::{Channel, Credentials};
use rpc::role::Role;
use rpc::sampler::SampleStreamOptions;
use rpc::shard::{describe, is_refusal};
use tokio::time::sleep;
use tonic::Status;
use value::priority::Priority;

use crate::error::{answered, invalid};
use crate::keeper::{Keeper, LEARNER_INCARNATION};
use crate::waiting::{Reason, deadline, wait};

/// How often the sampler polls an empty table.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout of the last updates in `close`.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// What a sampler samples, and from which shard.
pub struct SamplerConfig {
    pub address: Address,
    pub credentials: Credentials,
    pub client: ReplayClient<Channel>,
    pub run: String,
    pub options: SampleStreamOptions,
    pub min_size: u64,
    /// Keeps the shard configured while the sampler exists.
    pub keeper: Option<Arc<Keeper>>,
}

#[pyclass(module = "quiver_replay._core")]
pub struct Sampler {
    config: SamplerConfig,
    spec: StoreSpec,
    length: usize,
    decoder: Decoder,
    backoff: Backoff,
    stream: Option<rpc::sampler::SampleStream>,
    /// Whether the table has reached `min_size` items.
    begun: bool,
    closed: bool,
    /// Number of streams opened so far. Each stream uses another seed.
    opened: u64,
    stale: u64,
}

/// The arrays of a `Batch`.
#[derive(FromPyObject)]
struct Arrays<'py> {
    #[pyo3(attribute("_bytes"))]
    bytes: PyReadwriteArray2<'py, u8>,
    #[pyo3(attribute("_actions"))]
    actions: PyReadwriteArray2<'py, i64>,
    #[pyo3(attribute("_rewards"))]
    rewards: PyReadwriteArray2<'py, f32>,
    #[pyo3(attribute("_log_probabilities"))]
    log_probabilities: PyReadwriteArray2<'py, f32>,
    #[pyo3(attribute("_life_lost"))]
    life_lost: PyReadwriteArray2<'py, bool>,
    #[pyo3(attribute("_terminated"))]
    terminated: PyReadwriteArray1<'py, bool>,
    #[pyo3(attribute("_truncated"))]
    truncated: PyReadwriteArray1<'py, bool>,
    #[pyo3(attribute("_lengths"))]
    lengths: PyReadwriteArray1<'py, i64>,
    #[pyo3(attribute("_keys"))]
    keys: PyReadwriteArray2<'py, u64>,
    #[pyo3(attribute("_probabilities"))]
    probabilities: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("_priorities"))]
    priorities: PyReadwriteArray1<'py, f64>,
    #[pyo3(attribute("_times_sampled"))]
    times_sampled: PyReadwriteArray1<'py, u32>,
    #[pyo3(attribute("_ages"))]
    ages: PyReadwriteArray1<'py, u64>,
}

/// The same arrays as slices, in row-major order.
struct Rows<'a> {
    bytes: &'a mut [u8],
    actions: &'a mut [i64],
    rewards: &'a mut [f32],
    log_probabilities: &'a mut [f32],
    life_lost: &'a mut [bool],
    terminated: &'a mut [bool],
    truncated: &'a mut [bool],
    lengths: &'a mut [i64],
    keys: &'a mut [u64],
    probabilities: &'a mut [f64],
    priorities: &'a mut [f64],
    times_sampled: &'a mut [u32],
    ages: &'a mut [u64],
}

impl Arrays<'_> {
    /// Slices of `size` rows. An error if an array has another size.
    fn rows(&mut self, size: usize, length: usize, row_bytes: usize) -> PyResult<Rows<'_>> {
        let rows = Rows {
            bytes: self.bytes.as_slice_mut()?,
            actions: self.actions.as_slice_mut()?,
            rewards: self.rewards.as_slice_mut()?,
            log_probabilities: self.log_probabilities.as_slice_mut()?,
            life_lost: self.life_lost.as_slice_mut()?,
            terminated: self.terminated.as_slice_mut()?,
            truncated: self.truncated.as_slice_mut()?,
            lengths: self.lengths.as_slice_mut()?,
            keys: self.keys.as_slice_mut()?,
            probabilities: self.probabilities.as_slice_mut()?,
            priorities: self.priorities.as_slice_mut()?,
            times_sampled: self.times_sampled.as_slice_mut()?,
            ages: self.ages.as_slice_mut()?,
        };
        let steps =
            [rows.actions.len(), rows.rewards.len(), rows.log_probabilities.len(), rows.life_lost.len()];
        let items = [
            rows.terminated.len(),
            rows.truncated.len(),
            rows.lengths.len(),
            rows.keys.len() / 3,
            rows.probabilities.len(),
            rows.priorities.len(),
            rows.times_sampled.len(),
            rows.ages.len(),
        ];
        let fits = rows.bytes.len() == size * row_bytes
            && steps.iter().all(|&entries| entries == size * length)
            && items.iter().all(|&entries| entries == size);
        if fits {
            Ok(rows)
        } else {
            Err(invalid("the batch belongs to another sampler: use this sampler's new_batch()"))
        }
    }
}

#[pymethods]
impl Sampler {
    #[getter]
    fn stack(&self) -> usize {
        self.spec.options.stack
    }

    #[getter]
    fn stale(&self) -> u64 {
        self.stale + self.stream.as_ref().map_or(0, rpc::sampler::SampleStream::stale)
    }

    fn sample(&mut self, py: Python<'_>, mut batch: Arrays<'_>, timeout: Option<f64>) -> PyResult<usize> {
        self.open()?;
        let until = deadline(timeout)?;
        let (stack, frame_bytes) = (self.stack(), self.spec.options.frame_bytes);
        let (size, length) = (self.config.options.batch, self.length);
        let row_bytes = (stack + length) * frame_bytes;
        let mut rows = batch.rows(size, length, row_bytes)?;
        let reason = Reason::new(format!("the shard at {}", self.config.address));
        let drawn = wait(py, until, || reason.get(), self.next(&reason))?;
        let drawn = drawn.map_err(|status| answered(&self.config.address, &status))?;
        if drawn.len() > size {
            return Err(invalid(format!(
                "the shard returned {} items, but the request was for {size}",
                drawn.len()
            )));
        }
        let decoder = &mut self.decoder;
        py.detach(|| rows.fill(&drawn, decoder, stack, frame_bytes, length))?;
        Ok(drawn.len())
    }

    fn update(
        &mut self,
        py: Python<'_>,
        keys: PyReadonlyArray2<'_, u64>,
        priorities: PyReadonlyArray1<'_, f64>,
    ) -> PyResult<()> {
        self.open()?;
        let updates = updates(self.config.options.table, &keys, &priorities)?;
        let address = self.config.address.clone();
        let reason = || format!("the shard at {address} to take priorities");
        let sent = wait(py, None, reason, async {
            if self.stream.is_none() {
                self.connect().await?;
            }
            match &mut self.stream {
                Some(stream) => stream.update(&updates).await,
                None => Ok(()),
            }
        })?;
        match sent {
            Err(status) if is_refusal(&status) => Err(answered(&address, &status)),
            // The next batch detects a broken stream and reopens it.
            _ => Ok(()),
        }
    }

    /// Without `wait`, unsent updates are lost.
    fn close(&mut self, py: Python<'_>, wait: bool) -> PyResult<()> {
        self.closed = true;
        let Some(stream) = self.stream.take().filter(|_| wait) else { return Ok(()) };
        let reason = || format!("the shard at {} to take the last priorities", self.config.address);
        let finished = crate::waiting::wait(py, Some(Instant::now() + CLOSE_WAIT), reason, stream.finish())?;
        self.stale += finished.map_err(|status| answered(&self.config.address, &status))?;
        Ok(())
    }
}

impl Sampler {
    pub fn new(config: SamplerConfig, spec: &StoreSpec, length: usize) -> Self {
        Self {
            backoff: Backoff::new(config.options.seed),
            config,
            spec: spec.clone(),
            length,
            decoder: Decoder::new(spec.codec),
            stream: None,
            begun: false,
            closed: false,
            opened: 0,
            stale: 0,
        }
    }

    fn open(&self) -> PyResult<()> {
        if self.closed { Err(invalid("the sampler is closed")) } else { Ok(()) }
    }

    /// The next batch that has items. Retries temporary errors.
    async fn next(&mut self, reason: &Reason) -> Result<PackedBatch, Status> {
        loop {
            match self.attempt(reason).await {
                Ok(Some(batch)) => return Ok(batch),
                Ok(None) => sleep(POLL_INTERVAL).await,
                Err(status) if is_refusal(&status) => return Err(status),
                Err(status) => {
                    reason.set(format!("the shard at {}: {}", self.config.address, describe(&status)));
                    self.stale += self.stream.take().map_or(0, |stream| stream.stale());
                    sleep(self.backoff.next()).await;
                }
            }
        }
    }

    async fn attempt(&mut self, reason: &Reason) -> Result<Option<PackedBatch>, Status> {
        if !self.begun {
            let SamplerConfig { address, client, options, min_size, .. } = &mut self.config;
            let info = client.info(v1::InfoRequest {}).await?.into_inner();
            let status = info.shard.and_then(|shard| shard.tables.get(options.table).copied());
            let items = status.unwrap_or_default().items;
            if items < *min_size {
                reason.set(format!("{min_size} items in the shard at {address}, which has {items}"));
                return Ok(None);
            }
            self.begun = true;
        }
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.connect().await?,
        };
        let batch = stream.next().await?;
        if !batch.is_empty() {
            return Ok(Some(batch));
        }
        // The prefetched batches are empty as well.
        stream.drain().await?;
        reason.set(format!("items in the shard at {}", self.config.address));
        Ok(None)
    }

    async fn connect(&mut self) -> Result<&mut rpc::sampler::SampleStream, Status> {
        let SamplerConfig { address, credentials, run, options, .. } = &self.config;
        let seed = options.seed.wrapping_add(self.opened);
        let options = SampleStreamOptions { seed, ..options.clone() };
        let channel = credentials.channel(Role::Replay, address);
        let opened = rpc::sampler::SampleStream::open(channel, run, LEARNER_INCARNATION, &self.spec, options);
        let opened = opened.await?;
        self.opened += 1;
        self.backoff.reset();
        Ok(self.stream.insert(opened))
    }
}

impl Rows<'_> {
    fn fill(
        &mut self,
        batch: &PackedBatch,
        decoder: &mut Decoder,
        stack: usize,
        frame_bytes: usize,
        length: usize,
    ) -> PyResult<()> {
        let row_bytes = (stack + length) * frame_bytes;
        for (row, item) in batch.items().enumerate() {
            if item.length() > length {
                let steps = item.length();
                return Err(invalid(format!(
                    "an item has {steps} steps: create the sampler with length={steps}"
                )));
            }
            let target = &mut self.bytes[row * row_bytes..][..row_bytes];
            decoder
                .decode_item(item.frames(), item.lead(), item.length(), stack, frame_bytes, target)
                .map_err(invalid)?;
            let columns = row * length..(row + 1) * length;
            self.actions[columns.clone()].fill(0);
            self.rewards[columns.clone()].fill(0.0);
            self.log_probabilities[columns.clone()].fill(0.0);
            self.life_lost[columns.clone()].fill(false);
            for (column, step) in columns.zip(item.steps()) {
                self.actions[column] = step.action.into();
                self.rewards[column] = step.reward;
                self.log_probabilities[column] = step.log_probability;
                self.life_lost[column] = step.life_lost;
                // Only the last step of an item can end an episode.
                self.terminated[row] = step.terminated;
                self.truncated[row] = step.truncated;
            }
            self.lengths[row] = item.length() as i64;
            let ItemKey { incarnation, slot, generation } = item.key();
            self.keys[3 * row..][..3].copy_from_slice(&[incarnation.into(), slot.into(), generation]);
            self.probabilities[row] = item.probability();
            self.priorities[row] = item.priority().get();
            self.times_sampled[row] = item.times_sampled();
            self.ages[row] = item.age_inserts();
        }
        Ok(())
    }
}

/// Priority updates from numpy arrays.
pub fn updates(
    table: usize,
    keys: &PyReadonlyArray2<'_, u64>,
    priorities: &PyReadonlyArray1<'_, f64>,
) -> PyResult<Updates> {
    let (keys, priorities) = (keys.as_slice()?, priorities.as_slice()?);
    if keys.len() != 3 * priorities.len() {
        return Err(invalid(format!("{} priorities for {} items", priorities.len(), keys.len() / 3)));
    }
    let max = proto::limits::UPDATES_MAX;
    if priorities.len() > max {
        return Err(invalid(format!("{} updates in one call, must be at most {max}", priorities.len())));
    }
    let update = |(key, &priority): (&[u64], &f64)| {
        let incarnation =
            u32::try_from(key[0]).map_err(|_| invalid("invalid key: use keys from batch.keys"))?;
        let slot = u32::try_from(key[1]).map_err(|_| invalid("invalid key: use keys from batch.keys"))?;
        let priority = Priority::try_new(priority)
            .map_err(|_| invalid(format!("priority {priority}: must be finite and 0 or more")))?;
        Ok((ItemKey { incarnation, slot, generation: key[2] }, priority))
    };
    let priorities: Vec<_> = keys.chunks_exact(3).zip(priorities).map(update).collect::<PyResult<_>>()?;
    Ok(Updates { table, priorities, ..Updates::default() })
}
