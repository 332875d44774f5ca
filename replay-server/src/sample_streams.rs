//! One sample stream: a reply for each request, in order.

use proto::{BatchBuilder, v1};
use replay::EpisodeErrors;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::convert;
use crate::refusal::Refusal;
use crate::service::ServiceState;
use crate::shard::{LearnerIdentity, Shard};
use crate::writers::{FIRST_MESSAGE_TIMEOUT, StreamEnd};

/// Serves a stream until its learner closes it.
pub(crate) async fn serve(
    context: &ServiceState,
    mut requests: Streaming<v1::SampleRequest>,
    replies: &mpsc::Sender<Result<v1::SampleReply, Status>>,
) -> Result<(), StreamEnd> {
    let mut learner: Option<LearnerIdentity> = None;
    let first = timeout(FIRST_MESSAGE_TIMEOUT, next(context, &mut requests));
    let mut request = first.await.map_err(|_| Refusal::FirstMessageTimeout(FIRST_MESSAGE_TIMEOUT))??;
    while let Some(message) = request {
        convert::check_points(&message.points)?;
        let learner = match &mut learner {
            Some(learner) => learner,
            unset => unset.insert(convert::learner(message.caller, message.learner_incarnation)?),
        };
        let (learner, points, table) = (learner.clone(), message.points, message.table as usize);
        let reliabilities = message.reliabilities;
        let allowance = message.allowance.map(convert::allowance);
        let updates = message.updates.as_ref().map(proto::convert::updates).transpose();
        let updates = updates.map_err(Refusal::from)?;
        let sample = move |shard: &mut Shard| {
            let sampled = shard.sample(&learner, table, &points, allowance, updates.as_ref())?;
            Ok::<_, Refusal>((sampled, shard.status()))
        };
        let (sampled, time) = context.shard.timed(sample).await?;
        let ((mut batch, updated), status) = sampled?;
        if reliabilities {
            set_reliabilities(context, table, &mut batch).await?;
        }
        context.metrics.sample_seconds.observe(time.as_secs_f64());
        let shard = Some(context.status_message(status));
        let (applied, stale) = (updated.applied, updated.stale);
        let batch = batch.finish();
        context.metrics.record_sampled(&batch);
        let reply = v1::SampleReply { batch: Some(batch), shard, applied, stale };
        replies.send(Ok(reply)).await.map_err(|_| StreamEnd::Disconnected)?;
        request = next(context, &mut requests).await?;
    }
    Ok(())
}

/// Sets the reliabilities of the sampled items. Scans each episode once, and releases the shard between episodes so
/// that other calls get their turn.
async fn set_reliabilities(
    context: &ServiceState,
    table: usize,
    batch: &mut BatchBuilder,
) -> Result<(), Refusal> {
    let mut episodes: Vec<EpisodeErrors> = Vec::new();
    let mut reliabilities = Vec::new();
    for (key, lane, first) in batch.items() {
        if !episodes.iter().any(|episode| episode.holds(lane, first)) {
            episodes.extend(context.shard.read(|shard| shard.episode(table, key)).await?);
        }
        let episode = episodes.iter().find(|episode| episode.holds(lane, first));
        // The item was removed meanwhile, so the learner's priority for it will be ignored. Any value serves.
        reliabilities.push(episode.map_or(1.0, |episode| episode.reliability(first)));
    }
    batch.set_reliabilities(reliabilities);
    Ok(())
}

async fn next(
    context: &ServiceState,
    requests: &mut Streaming<v1::SampleRequest>,
) -> Result<Option<v1::SampleRequest>, StreamEnd> {
    requests.message().await.map_err(|status| StreamEnd::Transport(context.edge.refuse(status)))
}
