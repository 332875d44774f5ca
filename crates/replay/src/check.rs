//! The invariants that the rest of the crate relies on.
//!
//! A loaded table must satisfy them before it is used, because indexing trusts them; tests ask
//! for them after every operation. Each is given a name short enough for an error message.

use std::collections::HashSet;

use crate::lane::{Kind, Lanes, Phase, Segment};
use crate::options::TableOptions;
use crate::ring::ByteRing;
use crate::table::State;

type Checked = Result<(), &'static str>;

fn ensure(holds: bool, name: &'static str) -> Checked {
    if holds { Ok(()) } else { Err(name) }
}

/// Everything about a table's state but the frames themselves.
pub(crate) fn check_state(state: &State, options: &TableOptions) -> Checked {
    check_cursors(&state.lanes)?;
    check_order(state, options)?;
    for segment in &state.lanes.segments {
        check_steps(segment, options)?;
    }
    check_items(state, options)
}

/// Where the next saved frame goes, if it fits behind the ones before it.
pub(crate) fn check_frames_fit(ring: &ByteRing, tail: usize, length: usize) -> Result<usize, &'static str> {
    let place = if ring.used() == 0 { Some(tail) } else { ring.place(length) };
    let fits = |place: &usize| length <= ring.size() && *place <= ring.size() - length;
    place.filter(fits).ok_or("frames larger than the ring")
}

/// Cursors and open segments belong together one to one; the free list is what is left over.
fn check_cursors(lanes: &Lanes) -> Checked {
    let mut open = HashSet::new();
    let mut count = 0;
    for (&actor, writer) in &lanes.writers {
        for (&lane, cursor) in &writer.cursors {
            let segment = lanes.segments.get(cursor.segment as usize).ok_or("a lane's segment")?;
            let key = segment.lane;
            let same = (key.actor, key.incarnation, key.lane) == (actor, writer.incarnation, lane);
            ensure(same && segment.open && open.insert(cursor.segment), "a lane's segment")?;
            ensure(segment.first_step <= 1 << 62, "a step number")?;
            ensure(cursor.next_sequence <= 1 << 62, "a sequence number")?;
            ensure(segment.next_step() == cursor.next_step, "a lane's next step")?;
            if let Some(last) = segment.steps.back() {
                let after = match last.kind() {
                    Kind::Acts => Phase::Within(last.since_start),
                    Kind::Ends => Phase::Ending(last.since_start),
                    Kind::Final => Phase::Between,
                };
                ensure(cursor.phase == after, "a lane's phase")?;
            }
            count += 1;
        }
    }
    ensure(count == lanes.count, "the number of lanes")?;
    let free: HashSet<u32> = lanes.free.iter().copied().collect();
    ensure(free.len() == lanes.free.len(), "the free segments")?;
    for (index, segment) in lanes.segments.iter().enumerate() {
        let index = index as u32;
        let drained = !segment.open && segment.steps.is_empty();
        ensure(segment.open == open.contains(&index), "an open segment")?;
        ensure(drained == free.contains(&index), "the free segments")?;
    }
    ensure(free.iter().all(|&index| (index as usize) < lanes.segments.len()), "the free segments")
}

/// The global order counts every segment's steps.
fn check_order(state: &State, options: &TableOptions) -> Checked {
    ensure(state.order.len() <= options.steps_max(), "the number of steps")?;
    let mut counts = vec![0usize; state.lanes.segments.len()];
    for &index in &state.order {
        *counts.get_mut(index as usize).ok_or("the order of steps")? += 1;
    }
    let same = |(segment, &count): (&Segment, &usize)| segment.steps.len() == count;
    ensure(state.lanes.segments.iter().zip(&counts).all(same), "the order of steps")
}

/// Steps follow one another as episodes do.
fn check_steps(segment: &Segment, options: &TableOptions) -> Checked {
    ensure(segment.first_step <= 1 << 62, "a step number")?;
    let mut phase = None;
    for step in &segment.steps {
        let length = step.length as usize;
        ensure((1..=options.packed_bytes_max()).contains(&length), "a frame's length")?;
        let kind = step.kind();
        let since_start = step.since_start;
        phase = Some(match phase {
            // Whatever came before the oldest step is gone.
            None => match kind {
                Kind::Acts => Phase::Within(since_start),
                Kind::Ends => Phase::Ending(since_start),
                Kind::Final => Phase::Between,
            },
            Some(phase) => {
                let next = Phase::advance(phase, since_start == 0, kind);
                let (next, expected) = next.ok_or("the order of an episode")?;
                ensure(expected == since_start, "the order of an episode")?;
                next
            }
        });
    }
    Ok(())
}

/// Every live item lies in exactly one segment, in order, within one episode, on stored steps.
fn check_items(state: &State, options: &TableOptions) -> Checked {
    let inserts = state.counters.inserts;
    let slots = inserts.min(options.capacity as u64);
    ensure(inserts <= 1 << 62 && state.items.len() as u64 == slots, "the number of items")?;
    let live = state.items.iter().filter(|item| item.is_live()).count();
    ensure(live == state.live_items, "the number of items")?;

    let mut listed = 0;
    for (index, segment) in state.lanes.segments.iter().enumerate() {
        let mut newest = None;
        for &slot in &segment.items {
            let item = state.items.get(slot as usize).ok_or("an item's slot")?;
            let place = (item.number, item.first);
            ensure(item.is_live() && item.segment as usize == index, "an item's segment")?;
            let follows = newest.is_none_or(|(number, first)| number < place.0 && first <= place.1);
            ensure(follows, "the order of items")?;
            newest = Some(place);

            let in_turn = item.number % options.capacity as u64 == u64::from(slot);
            let recent = item.number < inserts && inserts - item.number <= options.capacity as u64;
            ensure(in_turn && recent, "an item's number")?;
            ensure(segment.window_start(item.first, options.stack).is_some(), "an item's window")?;
            let last = item.first + u64::from(item.length);
            ensure(last < segment.next_step(), "an item's end")?;
            for number in item.first..last {
                let kind = segment.step(number).ok_or("an item's steps")?.kind();
                let inside = kind == Kind::Acts || (kind == Kind::Ends && number + 1 == last);
                ensure(inside, "an item's steps")?;
            }
            listed += 1;
        }
        if let (true, Some((_, first))) = (segment.open, newest) {
            let cursor = state.lanes.cursor(segment.lane).ok_or("a lane's segment")?;
            ensure(first <= cursor.newest_item, "a lane's newest item")?;
        }
    }
    ensure(listed == live, "an item's segment")
}
