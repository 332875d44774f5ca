//! Converts messages to the shard's own types and back, in addition to [`proto::convert`].

use proto::limits::{POINTS_MAX, WAIT_MILLISECONDS_MAX};
use proto::{Invalid, PROTOCOL, v1};
use replay::store::Recovered;
use replay::store::inspect::{Histogram, TableInspection};
use replay::{Allowance, TICKET_KEY_BYTES, TicketKey};

use crate::refusal::Refusal;
use crate::shard::{Change, LearnerIdentity, WriterIdentity};

/// Bytes of a run's name. Generated names have about thirty.
const RUN_BYTES_MAX: usize = 256;

/// Bytes of a shard's id, the same limit as for `--id`.
const ID_BYTES_MAX: usize = 128;

/// The run of a caller with the same protocol version.
fn run(caller: Option<v1::Caller>) -> Result<String, Refusal> {
    let v1::Caller { protocol, run } = proto::convert::caller(caller)?;
    if protocol != PROTOCOL {
        return Err(Refusal::ProtocolMismatch(protocol));
    }
    match run.len() {
        0 => Err(Invalid::Missing("run").into()),
        bytes if bytes > RUN_BYTES_MAX => {
            Err(Invalid::range("length of run", bytes, format!("at most {RUN_BYTES_MAX}")).into())
        }
        _ => Ok(run),
    }
}

pub(crate) fn learner(caller: Option<v1::Caller>, incarnation: u32) -> Result<LearnerIdentity, Refusal> {
    Ok(LearnerIdentity { run: run(caller)?, incarnation })
}

pub(crate) fn writer(hello: v1::InsertHello) -> Result<WriterIdentity, Refusal> {
    if hello.shard.len() > ID_BYTES_MAX {
        let range = format!("at most {ID_BYTES_MAX}");
        return Err(Invalid::range("length of shard", hello.shard.len(), range).into());
    }
    let codec = hello.codec.parse().map_err(Invalid::from)?;
    Ok(WriterIdentity {
        run: run(hello.caller)?,
        actor: hello.actor,
        incarnation: hello.incarnation,
        codec,
        frame_bytes: hello.frame_bytes as usize,
        stack: hello.stack as usize,
        shard: hello.shard,
        ticket: hello.ticket,
    })
}

/// The caller of `IssueTicket`: the run, and the identity that the ticket will prove.
pub(crate) fn identity(request: v1::IssueTicketRequest) -> Result<(String, u32, u64), Refusal> {
    Ok((run(request.caller)?, request.actor, request.incarnation))
}

pub(crate) fn ticket_key(bytes: &[u8]) -> Result<Option<TicketKey>, Refusal> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let range = format!("{TICKET_KEY_BYTES}, or 0 for none");
    let wrong = Invalid::range("length of ticket_key", bytes.len(), range);
    TicketKey::from_bytes(bytes).map(Some).ok_or_else(|| wrong.into())
}

pub(crate) fn check_points(points: &[f64]) -> Result<(), Refusal> {
    if points.len() > POINTS_MAX {
        return Err(Invalid::range("points", points.len(), format!("at most {POINTS_MAX}")).into());
    }
    // NaN is in no range, so this refuses it too.
    match points.iter().find(|point| !(0.0..1.0).contains(*point)) {
        Some(point) => Err(Invalid::range("point", point, "from 0 up to but not including 1").into()),
        None => Ok(()),
    }
}

pub(crate) fn allowance(allowance: v1::Allowance) -> Allowance {
    Allowance { incarnation: allowance.shard_incarnation, inserts: allowance.inserts }
}

pub(crate) fn change(request: v1::ConfigureRequest) -> Change {
    let capacity = request.capacity.map(|capacity| usize::try_from(capacity).unwrap_or(usize::MAX));
    Change { table: request.table, capacity, priority_exponent: request.priority_exponent }
}

pub(crate) fn check_wait(wait: u32) -> Result<u32, Refusal> {
    if wait > WAIT_MILLISECONDS_MAX {
        let range = format!("at most {WAIT_MILLISECONDS_MAX}");
        return Err(Invalid::range("wait_milliseconds", wait, range).into());
    }
    Ok(wait)
}

pub(crate) fn inspection_message(inspection: TableInspection, top: v1::Batch) -> v1::InspectReply {
    let message = |histogram: Histogram| v1::Histogram { bounds: histogram.bounds, counts: histogram.counts };
    v1::InspectReply {
        priorities: Some(message(inspection.priorities)),
        ages_inserts: Some(message(inspection.ages)),
        times_sampled: Some(message(inspection.times_sampled)),
        top: Some(top),
    }
}

pub(crate) fn recovered_message(recovered: Recovered) -> v1::Recovered {
    v1::Recovered {
        chunks: recovered.chunks,
        items: recovered.items,
        damaged_chunks: recovered.damaged_chunks,
        damaged_priorities: recovered.damaged_priorities,
        damaged_lanes: recovered.damaged_lanes,
        lost_items: recovered.lost_items,
        damaged_state: recovered.damaged_state,
        failed_flush: recovered.failed_flush,
    }
}
