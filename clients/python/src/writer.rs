//! One environment's steps, packed and sent in chunks.

use std::sync::Arc;
use std::time::Instant;

use numpy::{PyReadonlyArray1, PyReadonlyArray2};
use proto::limits::{CHUNK_ITEMS_MAX, CHUNK_STEPS_MAX, INSERT_BYTES_MAX};
use proto::{StoreSpec, v1};
use pyo3::prelude::*;
use replay::codec::{Codec, Encoder};
use replay::{Chunk, InitialPriority, LaneKey, NewItem, Step, TableOptions, Taken, WeightsVersion};
use rpc::address::Address;
use rpc::writer::State;
use value::priority::Priority;

use crate::error::{ended, invalid};
use crate::keeper::Keeper;
use crate::lanes::{Lease, Mark};
use crate::store::index;
use crate::waiting::{deadline, runtime, wait};

/// Chunks that are sent before the first of them must be acknowledged.
const AT_ONCE: usize = 8;

/// Steps of an item.
const LENGTH_MAX: u64 = 255;

/// Items that the last frame of an episode may complete.
const ITEMS_AT_ONCE: usize = CHUNK_ITEMS_MAX / 2;

#[pyclass(module = "quiver_replay._core")]
pub struct Writer {
    address: Address,
    lease: Lease,
    /// Held, not used.
    _keeper: Option<Arc<Keeper>>,
    /// Absent once closed.
    connection: Option<rpc::writer::Writer>,
    lane: Lane,
    tables: Vec<TableOptions>,
    actions: u16,
}

/// What is not sent yet, and where the lane stands.
struct Lane {
    key: LaneKey,
    codec: Codec,
    frame_bytes: usize,
    encoder: Encoder,
    chunk_steps: usize,
    steps: Vec<Step>,
    frames: Vec<u8>,
    items: Vec<NewItem>,
    sequence: u64,
    next_step: u64,
    episode: Episode,
    /// Items come in order of their first steps.
    last_first: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Episode {
    /// The next step begins one.
    Between { first: u64 },
    /// Its first step.
    Goes { first: u64 },
    /// The last step ended it; its last frame must follow.
    Ended { first: u64 },
}

#[pymethods]
impl Writer {
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
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

    #[expect(clippy::too_many_arguments, reason = "Python names them")]
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
            ("frames", frames.len() / self.lane.frame_bytes, steps + 1),
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
        // Everything is checked before the first step is taken.
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
        if !(1..=LENGTH_MAX).contains(&length) {
            return Err(invalid(format!("length is {length}, must be 1 to {LENGTH_MAX}")));
        }
        if length as usize * tables.len() > ITEMS_AT_ONCE {
            return Err(invalid(format!("length times tables must be {ITEMS_AT_ONCE} or less")));
        }
        if !matches!(self.lane.episode, Episode::Between { .. }) {
            return Err(invalid("an episode is under way: end() it first, or abandon() it"));
        }
        self.send(py, self.lane.is_full(), until)?;

        let start = self.lane.start();
        let mut episode = Whole {
            frames,
            taken: &taken,
            priorities: &priorities,
            tables: &tables,
            length,
            step: 0,
            item: 0,
        };
        loop {
            let lane = &mut self.lane;
            if py.detach(|| episode.pack(lane)) {
                return Ok(());
            }
            if let Err(error) = self.send(py, true, until) {
                self.lane.undo(&start);
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

    /// Steps that were not sent.
    #[getter]
    fn unsent(&self) -> usize {
        self.lane.steps.len()
    }

    #[getter]
    fn waiting_for(&self) -> Option<String> {
        match self.connection.as_ref()?.state() {
            State::Open => None,
            State::Waiting(what) | State::Fenced(what) | State::Refused(what) => Some(what),
            State::Finished => Some("the run has ended".into()),
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
    pub fn new(
        address: Address,
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
        };
        let _inside = runtime()?.enter();
        let connection = Some(rpc::writer::Writer::spawn(address.clone(), hello, AT_ONCE, key.incarnation));
        let lane = Lane {
            key,
            codec: spec.codec,
            frame_bytes,
            encoder: Encoder::new(spec.codec, frame_bytes),
            chunk_steps,
            steps: Vec::new(),
            frames: Vec::new(),
            items: Vec::new(),
            sequence: lease.from.sequence,
            next_step: lease.from.next_step,
            episode: Episode::Between { first: lease.from.next_step },
            last_first: 0,
        };
        let (tables, actions) = (spec.options.tables.clone(), spec.actions);
        Ok(Self { address, lease, _keeper: keeper, connection, lane, tables, actions })
    }

    fn connection(&self) -> PyResult<&rpc::writer::Writer> {
        self.connection.as_ref().ok_or_else(|| invalid("the writer is closed"))
    }

    /// The next writer of this lane goes on here.
    fn leave(&mut self) {
        let Some(connection) = self.connection.take() else { return };
        // What was not sent, or an episode that did not end, is a gap.
        self.lane.abandon();
        let mark = Mark { sequence: self.lane.sequence, next_step: self.lane.next_step };
        self.lease.give_back(mark, connection.state().is_final());
    }

    /// Sends what there is, if `now`.
    fn send(&mut self, py: Python<'_>, now: bool, until: Option<Instant>) -> PyResult<()> {
        let connection = self.connection()?;
        if !now || self.lane.steps.is_empty() {
            return Ok(());
        }
        // Only once there is room: whoever is interrupted while waiting has lost nothing.
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
        if frame.len() == self.lane.frame_bytes {
            return Ok(frame);
        }
        Err(invalid(format!("a frame of {} bytes, must be {}", frame.len(), self.lane.frame_bytes)))
    }
}

/// An episode on its way into a lane.
struct Whole<'a> {
    frames: &'a [u8],
    taken: &'a [Taken],
    priorities: &'a [InitialPriority],
    tables: &'a [u8],
    length: u64,
    /// Frames and items that are in.
    step: usize,
    item: usize,
}

impl Whole<'_> {
    /// Packs frames until the lane has a chunk to send, and says whether all are in.
    fn pack(&mut self, lane: &mut Lane) -> bool {
        let total = self.taken.len();
        while self.step <= total {
            if lane.is_full() {
                return false;
            }
            let frame = &self.frames[self.step * lane.frame_bytes..][..lane.frame_bytes];
            lane.push(frame, self.taken.get(self.step).copied());
            // All items that this frame completes.
            while self.item < total && (self.item + self.length as usize).min(total) <= self.step {
                let length = (self.length as usize).min(total - self.item) as u8;
                let first = lane.next_step - 1 - (self.step - self.item) as u64;
                let priority = self.priorities[self.item];
                lane.items.extend(self.tables.iter().map(|&table| NewItem {
                    first,
                    length,
                    priority,
                    table,
                }));
                lane.last_first = first;
                self.item += 1;
            }
            self.step += 1;
        }
        true
    }
}

/// Where a lane stood.
struct Start {
    sequence: u64,
    next_step: u64,
    steps: usize,
    frames: usize,
    items: usize,
    last_first: u64,
}

impl Lane {
    fn start(&self) -> Start {
        Start {
            sequence: self.sequence,
            next_step: self.next_step,
            steps: self.steps.len(),
            frames: self.frames.len(),
            items: self.items.len(),
            last_first: self.last_first,
        }
    }

    /// Takes back what came after. If some of it was sent, the rest is lost on the way.
    fn undo(&mut self, start: &Start) {
        if self.sequence != start.sequence {
            return self.abandon();
        }
        self.steps.truncate(start.steps);
        self.frames.truncate(start.frames);
        self.items.truncate(start.items);
        (self.next_step, self.last_first) = (start.next_step, start.last_first);
        self.episode = Episode::Between { first: self.next_step };
        self.encoder = Encoder::new(self.codec, self.frame_bytes);
    }

    /// Whether what there is must be sent before another frame, which may be large and complete many items.
    fn is_full(&self) -> bool {
        self.steps.len() >= self.chunk_steps
            || self.items.len() + ITEMS_AT_ONCE > CHUNK_ITEMS_MAX
            || self.frames.len() > INSERT_BYTES_MAX / 4
    }

    fn may_act(&self) -> PyResult<()> {
        match self.episode {
            Episode::Ended { .. } => Err(invalid("the episode has ended: its last frame goes with end()")),
            _ => Ok(()),
        }
    }

    fn may_end(&self) -> PyResult<()> {
        match self.episode {
            Episode::Ended { .. } => Ok(()),
            _ => {
                Err(invalid("no step has ended the episode: the last append() says terminated or truncated"))
            }
        }
    }

    fn push(&mut self, frame: &[u8], taken: Option<Taken>) {
        let before = self.frames.len();
        let key_frame = self.encoder.encode_into(frame, &mut self.frames);
        let frame_bytes = (self.frames.len() - before) as u32;
        let (starts_episode, first) = match self.episode {
            Episode::Between { .. } => (true, self.next_step),
            Episode::Goes { first } | Episode::Ended { first } => (false, first),
        };
        self.episode = match taken {
            None => Episode::Between { first },
            Some(taken) if taken.ends_episode() => Episode::Ended { first },
            Some(_) => Episode::Goes { first },
        };
        self.steps.push(Step { frame_bytes, key_frame, starts_episode, taken });
        self.next_step += 1;
    }

    fn item(&mut self, length: u64, priority: InitialPriority, table: u8) -> PyResult<()> {
        let (Episode::Between { first } | Episode::Goes { first } | Episode::Ended { first }) = self.episode;
        if self.steps.is_empty() {
            return Err(invalid("an item is made before flush(), while its last frame is still here"));
        }
        let steps = self.next_step - 1 - first;
        if length == 0 || length > steps.min(LENGTH_MAX) {
            let most = steps.min(LENGTH_MAX);
            return Err(invalid(format!(
                "length is {length}, but there are {most} steps before the last frame"
            )));
        }
        let first = self.next_step - 1 - length;
        if first < self.last_first {
            return Err(invalid(
                "items come in the order of their first steps: an earlier item begins later",
            ));
        }
        if self.items.len() == CHUNK_ITEMS_MAX {
            return Err(invalid(format!("{} items since the last step that was sent", self.items.len())));
        }
        self.last_first = first;
        self.items.push(NewItem { first, length: length as u8, priority, table });
        Ok(())
    }

    /// Drops what was not sent, as if it had been lost on the way: anything may follow.
    fn abandon(&mut self) {
        if self.steps.is_empty() && matches!(self.episode, Episode::Between { .. }) {
            return;
        }
        self.take();
        self.encoder = Encoder::new(self.codec, self.frame_bytes);
        self.episode = Episode::Between { first: self.next_step };
    }

    fn take(&mut self) -> Chunk {
        let steps = std::mem::take(&mut self.steps);
        let first_step = self.next_step - steps.len() as u64;
        let sequence = self.sequence;
        self.sequence += 1;
        let frames = std::mem::take(&mut self.frames).into();
        let items = std::mem::take(&mut self.items);
        Chunk { lane: self.key, sequence, first_step, steps, frames, items }
    }
}

fn priority(priority: Option<f64>) -> PyResult<InitialPriority> {
    let Some(priority) = priority else { return Ok(InitialPriority::Largest) };
    let valid = Priority::try_new(priority);
    let valid = valid.map_err(|_| invalid(format!("priority {priority}: must be finite and 0 or more")))?;
    Ok(InitialPriority::Of(valid))
}
