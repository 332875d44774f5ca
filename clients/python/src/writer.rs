//! Writes one environment's steps: compresses them and sends them in chunks.

use std::sync::Arc;
use std::time::Instant;

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use proto::limits::CHUNK_STEPS_MAX;
use proto::{StoreSpec, v1};
use pyo3::prelude::*;
use replay::{InitialPriority, TableOptions, Taken, WeightsVersion};
use rpc::address::Address;
use rpc::channel::Credentials;
use rpc::shard_entry::ShardEntry;
use rpc::writer::WriterState;
use value::priority::Priority;

use crate::error::{ended, invalid};
use crate::keeper::Keeper;
use crate::lane::{EpisodePacker, ITEMS_AT_ONCE, Lane};
use crate::lease::Lease;
use crate::store::index;
use crate::waiting::{deadline, runtime, wait};

/// Chunks of one burst. Twice as many may be in flight.
const BURST: usize = 8;

#[pyclass(module = "quiver_replay._core")]
pub struct Writer {
    address: Address,
    lease: Lease,
    /// Keeps the shard configured while the writer exists.
    _keeper: Option<Arc<Keeper>>,
    /// `None` after close.
    connection: Option<rpc::writer::ChunkWriter>,
    lane: Lane,
    tables: Vec<TableOptions>,
    actions: u16,
}

#[pymethods]
impl Writer {
    #[expect(clippy::too_many_arguments, reason = "Python calls use keyword arguments")]
    fn append(
        &mut self,
        py: Python<'_>,
        frame: PyReadonlyArray1<'_, u8>,
        action: i64,
        reward: f32,
        log_probability: f32,
        terminated: bool,
        truncated: bool,
        life_lost: bool,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let until = deadline(timeout)?;
        let mut taken = self.taken(action, reward, log_probability)?;
        (taken.terminated, taken.truncated, taken.life_lost) = (terminated, truncated, life_lost);
        self.lane.may_act()?;
        self.send(py, self.lane.is_full(), until)?;
        let frame = self.frame(frame.as_slice()?)?;
        self.lane.push(frame, Some(taken));
        Ok(())
    }

    fn end(&mut self, py: Python<'_>, frame: PyReadonlyArray1<'_, u8>, timeout: Option<f64>) -> PyResult<()> {
        let until = deadline(timeout)?;
        self.lane.may_end()?;
        self.send(py, self.lane.is_full(), until)?;
        let frame = self.frame(frame.as_slice()?)?;
        self.lane.push(frame, None);
        Ok(())
    }

    fn item(&mut self, length: u64, priority: Option<f64>, table: Option<&str>) -> PyResult<()> {
        self.connection()?;
        let table = index(&self.tables, table)? as u8;
        self.lane.item(length, self::priority(priority)?, table)
    }

    #[expect(clippy::too_many_arguments, reason = "Python calls use keyword arguments")]
    fn write(
        &mut self,
        py: Python<'_>,
        frames: PyReadonlyArray2<'_, u8>,
        actions: PyReadonlyArray1<'_, i64>,
        rewards: PyReadonlyArray1<'_, f32>,
        log_probabilities: Option<PyReadonlyArray1<'_, f32>>,
        priorities: Option<PyReadonlyArray1<'_, f64>>,
        terminated: bool,
        length: u64,
        tables: Vec<String>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let until = deadline(timeout)?;
        let (frames, actions, rewards) = (frames.as_slice()?, actions.as_slice()?, rewards.as_slice()?);
        let log_probabilities = log_probabilities.as_ref().map(PyReadonlyArray1::as_slice).transpose()?;
        let priorities = priorities.as_ref().map(PyReadonlyArray1::as_slice).transpose()?;
        let steps = actions.len();
        let lengths = [
            ("frames", frames.len() / self.lane.frame_bytes(), steps + 1),
            ("rewards", rewards.len(), steps),
            ("log_probabilities", log_probabilities.map_or(steps, <[_]>::len), steps),
            ("priorities", priorities.map_or(steps, <[_]>::len), steps),
        ];
        if steps == 0 {
            return Err(invalid("an episode has 1 step or more"));
        }
        for (what, got, wanted) in lengths {
            if got != wanted {
                return Err(invalid(format!("{got} {what} for {steps} actions, must be {wanted}")));
            }
        }
        // Validate all arguments before the first step is added.
        let named = tables.iter().map(|name| Ok(index(&self.tables, Some(name))? as u8));
        let tables: Vec<u8> = if tables.is_empty() { vec![0] } else { named.collect::<PyResult<_>>()? };
        let taken = |step: usize| {
            let log_probability = log_probabilities.map_or(0.0, |all| all[step]);
            let mut taken = self.taken(actions[step], rewards[step], log_probability)?;
            let last = step + 1 == steps;
            (taken.terminated, taken.truncated) = (last && terminated, last && !terminated);
            Ok(taken)
        };
        let taken: Vec<Taken> = (0..steps).map(taken).collect::<PyResult<_>>()?;
        let priorities: Vec<InitialPriority> =
            (0..steps).map(|step| priority(priorities.map(|all| all[step]))).collect::<PyResult<_>>()?;
        self.lane.check_length(length)?;
        if length as usize * tables.len() > ITEMS_AT_ONCE {
            return Err(invalid(format!("length times tables must be {ITEMS_AT_ONCE} or less")));
        }
        self.lane.may_begin()?;
        self.send(py, self.lane.is_full(), until)?;

        let savepoint = self.lane.savepoint();
        let mut episode = EpisodePacker::new(frames, &taken, &priorities, &tables, length);
        loop {
            let lane = &mut self.lane;
            if py.detach(|| episode.pack(lane)) {
                return Ok(());
            }
            if let Err(error) = self.send(py, true, until) {
                self.lane.rollback(&savepoint);
                return Err(error);
            }
        }
    }

    fn abandon(&mut self) -> PyResult<()> {
        self.connection()?;
        self.lane.abandon();
        Ok(())
    }

    fn flush(&mut self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let until = deadline(timeout)?;
        self.send(py, true, until)?;
        let connection = self.connection()?;
        let done = wait(py, until, || self.waits_for("to acknowledge"), connection.flush())?;
        done.map_err(|state| ended(&self.address, &state))
    }

    /// Number of unsent steps.
    #[getter]
    fn unsent(&self) -> usize {
        self.lane.steps()
    }

    #[getter]
    fn waiting_for(&self) -> Option<String> {
        match self.connection.as_ref()?.state() {
            WriterState::Open => None,
            WriterState::Waiting(what) | WriterState::Fenced(what) | WriterState::Refused(what) => Some(what),
            WriterState::Finished => Some("the run has ended".into()),
        }
    }

    fn close(&mut self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        if self.connection.is_some() {
            self.flush(py, timeout)?;
            self.leave();
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Writer {
    /// Opens a connection to the shard at an address with these credentials.
    pub fn new(
        (address, credentials): (Address, Credentials),
        run: &str,
        lease: Lease,
        spec: &StoreSpec,
        chunk_steps: usize,
        keeper: Option<Arc<Keeper>>,
    ) -> PyResult<Self> {
        let key = lease.key;
        if !(1..=CHUNK_STEPS_MAX).contains(&chunk_steps) {
            return Err(invalid(format!("chunk_steps is {chunk_steps}, must be 1 to {CHUNK_STEPS_MAX}")));
        }
        let frame_bytes = spec.options.frame_bytes;
        let hello = v1::InsertHello {
            caller: Some(proto::caller(run)),
            actor: key.actor,
            incarnation: key.incarnation,
            codec: spec.codec.to_string(),
            frame_bytes: frame_bytes as u32,
            stack: spec.options.stack as u32,
            ..v1::InsertHello::default()
        };
        let _inside = runtime()?.enter();
        let entry = ShardEntry::fixed(address.clone());
        let writer = rpc::writer::ChunkWriter::spawn(0, entry, credentials, hello, BURST, key.incarnation);
        let connection = Some(writer);
        let lane = Lane::new(&lease, spec, chunk_steps);
        let (tables, actions) = (spec.options.tables.clone(), spec.actions);
        Ok(Self { address, lease, _keeper: keeper, connection, lane, tables, actions })
    }

    fn connection(&self) -> PyResult<&rpc::writer::ChunkWriter> {
        self.connection.as_ref().ok_or_else(|| invalid("the writer is closed"))
    }

    /// Closes the connection and releases the lane for its next writer.
    fn leave(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // Unsent steps, or an episode that did not end, become a gap in the lane.
        self.lane.abandon();
        self.lease.release(self.lane.position(), connection.state().is_final());
    }

    /// If `now`, sends the unsent steps as a chunk.
    fn send(&mut self, py: Python<'_>, now: bool, until: Option<Instant>) -> PyResult<()> {
        let connection = self.connection()?;
        if !now || self.lane.steps() == 0 {
            return Ok(());
        }
        // Take the chunk only when there is room, so that an interrupted wait loses nothing.
        let room = wait(py, until, || self.waits_for("to take more"), connection.room())?;
        room.map_err(|state| ended(&self.address, &state))?;
        let chunk = self.lane.take();
        let connection = self.connection()?;
        let sent = wait(py, None, || self.waits_for("to take more"), connection.send(chunk))?;
        sent.map_err(|state| ended(&self.address, &state))
    }

    fn waits_for(&self, what: &str) -> String {
        let why = self.waiting_for().map_or_else(String::new, |why| format!(" ({why})"));
        format!("the shard at {} {what}{why}", self.address)
    }

    fn taken(&self, action: i64, reward: f32, log_probability: f32) -> PyResult<Taken> {
        let allowed = u16::try_from(action).ok().filter(|&action| action < self.actions);
        let action =
            allowed.ok_or_else(|| invalid(format!("action {action}: must be 0 to {}", self.actions - 1)))?;
        if !reward.is_finite() || !log_probability.is_finite() {
            return Err(invalid(format!(
                "reward {reward}, log_probability {log_probability}: must be finite"
            )));
        }
        let (terminated, truncated, life_lost) = (false, false, false);
        let weights = WeightsVersion::default();
        Ok(Taken { action, reward, terminated, truncated, life_lost, log_probability, weights })
    }

    fn frame<'a>(&self, frame: &'a [u8]) -> PyResult<&'a [u8]> {
        if frame.len() == self.lane.frame_bytes() {
            return Ok(frame);
        }
        Err(invalid(format!("a frame of {} bytes, must be {}", frame.len(), self.lane.frame_bytes())))
    }
}

fn priority(priority: Option<f64>) -> PyResult<InitialPriority> {
    let Some(priority) = priority else { return Ok(InitialPriority::Largest) };
    let valid = Priority::try_new(priority);
    let valid = valid.map_err(|_| invalid(format!("priority {priority}: must be finite and 0 or more")))?;
    Ok(InitialPriority::Of(valid))
}
