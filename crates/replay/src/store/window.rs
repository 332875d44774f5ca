//! The steps that the items of one chunk may need, read once per chunk.
//!
//! An item ends in the chunk that carries it and has at most `max_length` steps. So it needs no step more than
//! [`reach`] steps before the chunk. The window holds those: each look-up of an item is an index into it, and the work
//! per chunk is its own steps plus the reach, whatever its items refer to and however short the chunks before it are.

use crate::chunk::KEY_DISTANCE_MAX;
use crate::options::StoreOptions;
use crate::store::log::Log;
use crate::store::phase::StepKind;
use crate::store::record::{NO_KEY, StepRecord};

/// How many steps before its chunk an item may need: its own, the rest of its stack, and those back to a key frame.
pub(crate) fn reach(options: &StoreOptions) -> u64 {
    u64::from(options.max_length) + lead_max(options)
}

/// How many steps before its first one an item may need.
fn lead_max(options: &StoreOptions) -> u64 {
    options.stack as u64 - 1 + u64::from(KEY_DISTANCE_MAX)
}

/// What an item needs before its first step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lead {
    /// How many steps.
    pub back: u16,
    /// Number of the chunk that has the first of them.
    pub chunk: u64,
}

#[derive(Clone, Copy)]
struct WindowStep {
    /// Number of the chunk that has it.
    chunk: u64,
    /// The first step from here on that is not followed by another action.
    end: u64,
    kind: StepKind,
    since_start: u8,
    since_key: u8,
}

/// Steps of one chain without gaps: those of a chunk, and those before it that its items may need.
#[derive(Default)]
pub(crate) struct Window {
    /// Number of the first of `steps`.
    start: u64,
    steps: Vec<WindowStep>,
    /// Steps of chunks before this one are no longer stored.
    oldest_chunk: u64,
    /// The chunks that `fill` found, newest first.
    chunks: Vec<u64>,
}

/// The chunk whose items a window is for.
pub(crate) struct Carrier<'a> {
    pub number: u64,
    /// The chunk before it in its chain, or 0.
    pub previous: u64,
    pub first_step: u64,
    pub steps: &'a [StepRecord],
    /// First step of its first item.
    pub first_item: u64,
}

impl Window {
    /// Reads the steps that the items of a chunk may need.
    pub fn fill(&mut self, log: &Log, options: &StoreOptions, carrier: &Carrier<'_>) {
        let &Carrier { number, previous, first_step, steps, first_item } = carrier;
        let wanted = first_item.saturating_sub(lead_max(options));
        let from = wanted.max(first_step.saturating_sub(reach(options))).min(first_step);
        self.chunks.clear();
        let mut chunk = previous;
        while let Some(entry) = log.entry(chunk).filter(|entry| !entry.is_lost() && from < entry.end()) {
            log.count_walked(1);
            self.chunks.push(chunk);
            if entry.first_step <= from {
                break;
            }
            chunk = entry.previous;
        }
        self.steps.clear();
        self.start = first_step;
        while let Some(chunk) = self.chunks.pop() {
            let record = log.record(chunk).expect("it has an entry that is not lost");
            let begin = record.header().first_step;
            let skipped = from.saturating_sub(begin) as usize;
            self.start = self.start.min(begin + skipped as u64);
            self.push(log, chunk, &record.steps()[skipped..]);
        }
        self.push(log, number, steps);
        self.oldest_chunk = 0;
        let mut end = u64::MAX;
        for (at, step) in self.steps.iter_mut().enumerate().rev() {
            if step.kind != StepKind::Acts {
                end = self.start + at as u64;
            }
            step.end = end;
        }
    }

    fn push(&mut self, log: &Log, chunk: u64, steps: &[StepRecord]) {
        log.count_walked(steps.len());
        self.steps.extend(steps.iter().map(|step| WindowStep {
            chunk,
            end: u64::MAX,
            kind: step.kind(),
            since_start: step.since_start,
            since_key: step.since_key,
        }));
    }

    /// Chunks before this one have been reclaimed since [`Window::fill`].
    pub fn drop_until(&mut self, oldest_chunk: u64) {
        self.oldest_chunk = oldest_chunk;
    }

    fn step(&self, number: u64) -> Option<&WindowStep> {
        let step = self.steps.get(usize::try_from(number.checked_sub(self.start)?).ok()?)?;
        (step.chunk >= self.oldest_chunk).then_some(step)
    }

    /// What an item at `first` needs before it. `None` if not all of it is stored.
    pub fn lead(&self, options: &StoreOptions, first: u64) -> Option<Lead> {
        let before = (options.stack - 1).min(usize::from(self.step(first)?.since_start)) as u64;
        let start = first.checked_sub(before)?;
        let since_key = self.step(start).map(|step| step.since_key).filter(|&since| since != NO_KEY)?;
        let from = start.checked_sub(since_key.into())?;
        // A damaged record may count its steps from a key frame that is none.
        let key = self.step(from).filter(|step| step.since_key == 0)?;
        Some(Lead { back: (first - from) as u16, chunk: key.chunk })
    }

    /// The step with which the actions from `first` up to `last` end too early, if any: an item must not extend past it.
    /// Steps that are not stored count as actions.
    pub fn crossed_end(&self, first: u64, last: u64) -> Option<u64> {
        let end = self.step(first.max(self.start))?.end;
        let crosses = match self.step(end)?.kind {
            StepKind::Final => end < last,
            StepKind::Ends => end + 1 < last,
            StepKind::Acts => false,
        };
        crosses.then_some(end)
    }

    /// Whether this step is stored.
    pub fn holds(&self, number: u64) -> bool {
        self.step(number).is_some()
    }
}
