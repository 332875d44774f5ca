//! Messages to what the shard understands and back, beyond what [`proto::convert`] does for everyone.

use proto::convert::{counters_message, key_message, lane_message, priority, taken_message};
use proto::limits::{POINTS_MAX, UPDATES_MAX, WAIT_MILLISECONDS_MAX};
use proto::{Invalid, PROTOCOL, Sampled, v1};
use replay::codec::UnknownCodec;

use crate::refusal::Refusal;
use crate::shard::{Allowance, Identity, Learner, Standing, Verdicts, Writer};

/// Bytes of a run's name. Ours have some thirty.
const RUN_BYTES_MAX: usize = 256;

/// The run of a caller that speaks our protocol.
fn run(caller: Option<v1::Caller>) -> Result<String, Refusal> {
    let v1::Caller { protocol, run } = proto::convert::caller(caller)?;
    if protocol != PROTOCOL {
        return Err(Refusal::Protocol(protocol));
    }
    match run.len() {
        0 => Err(Invalid::Missing("run").into()),
        bytes if bytes > RUN_BYTES_MAX => {
            Err(Invalid::range("length of run", bytes, format!("at most {RUN_BYTES_MAX}")).into())
        }
        _ => Ok(run),
    }
}

pub(crate) fn learner(caller: Option<v1::Caller>, incarnation: u32) -> Result<Learner, Refusal> {
    Ok(Learner { run: run(caller)?, incarnation })
}

pub(crate) fn writer(hello: v1::InsertHello) -> Result<Writer, Refusal> {
    let codec = hello.codec.parse().map_err(|unknown: UnknownCodec| Invalid::Codec(unknown.to_string()))?;
    Ok(Writer {
        run: run(hello.caller)?,
        actor: hello.actor,
        incarnation: hello.incarnation,
        codec,
        frame_bytes: hello.frame_bytes as usize,
        stack: hello.stack as usize,
    })
}

pub(crate) fn points(points: &[f64]) -> Result<(), Refusal> {
    if points.len() > POINTS_MAX {
        return Err(Invalid::range("points", points.len(), format!("at most {POINTS_MAX}")).into());
    }
    // A NaN is in no range.
    match points.iter().find(|point| !(0.0..1.0).contains(*point)) {
        Some(point) => Err(Invalid::range("point", point, "from 0 up to but not including 1").into()),
        None => Ok(()),
    }
}

pub(crate) fn allowance(allowance: v1::Allowance) -> Allowance {
    Allowance { shard_incarnation: allowance.shard_incarnation, inserts: allowance.inserts }
}

pub(crate) fn verdicts(
    updates: Vec<v1::PriorityUpdate>,
    remove: Vec<v1::ItemKey>,
    largest_priority: f64,
) -> Result<Verdicts, Refusal> {
    for (what, count) in [("updates", updates.len()), ("remove", remove.len())] {
        if count > UPDATES_MAX {
            return Err(Invalid::range(what, count, format!("at most {UPDATES_MAX}")).into());
        }
    }
    Ok(Verdicts {
        updates: proto::convert::updates(updates)?,
        remove: remove.into_iter().map(proto::convert::key).collect(),
        largest_priority: priority(largest_priority)?,
    })
}

pub(crate) fn wait_milliseconds(wait: u32) -> Result<u32, Refusal> {
    if wait > WAIT_MILLISECONDS_MAX {
        let range = format!("at most {WAIT_MILLISECONDS_MAX}");
        return Err(Invalid::range("wait_milliseconds", wait, range).into());
    }
    Ok(wait)
}

pub(crate) fn item_message(item: Sampled) -> v1::Item {
    v1::Item {
        key: Some(key_message(item.key)),
        probability: item.probability,
        priority: item.priority.get(),
        times_sampled: item.times_sampled,
        age_inserts: item.age_inserts,
        lane: Some(lane_message(item.lane)),
        first_step: item.first_step,
        steps: item.steps.into_iter().map(taken_message).collect(),
        frames: item.frames,
    }
}

pub(crate) fn shard_message(identity: &Identity, standing: &Standing, writers_waiting: u32) -> v1::Shard {
    v1::Shard {
        id: identity.id.clone(),
        incarnation: identity.incarnation,
        items: standing.items,
        mass: standing.mass,
        largest_priority: standing.largest_priority,
        frame_bytes_used: standing.frame_bytes_used,
        inserts_allowed: standing.inserts_allowed,
        writers_waiting,
        counters: Some(counters_message(standing.counters)),
    }
}
