//! One sample stream: a reply for each request, in order.

use proto::{BatchBuilder, v1};
use replay::Episode;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::{Status, Streaming};

use crate::convert;
use crate::refusal::Refusal;
use crate::service::Context;
use crate::shard::{Learner, Shard};
use crate::writers::{End, HELLO_PATIENCE};

/// Serves a stream until its learner has no more requests.
pub(crate) async fn serve(
    context: &Context,
    mut requests: Streaming<v1::SampleRequest>,
    replies: &mpsc::Sender<Result<v1::SampleReply, Status>>,
) -> Result<(), End> {
    let mut learner: Option<Learner> = None;
    let first = timeout(HELLO_PATIENCE, next(context, &mut requests));
    let mut request = first.await.map_err(|_| Refusal::Silent(HELLO_PATIENCE))??;
    while let Some(message) = request {
        convert::points(&message.points)?;
        let learner = match &mut learner {
            Some(learner) => learner,
            none => none.insert(convert::learner(message.caller, message.learner_incarnation)?),
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
            rely(context, table, &mut batch).await?;
        }
        context.metrics.sample_seconds.observe(time.as_secs_f64());
        let shard = Some(context.status_message(status));
        let (applied, stale) = (updated.applied, updated.stale);
        let batch = batch.finish();
        context.metrics.drawn(&batch);
        let reply = v1::SampleReply { batch: Some(batch), shard, applied, stale };
        replies.send(Ok(reply)).await.map_err(|_| End::Gone)?;
        request = next(context, &mut requests).await?;
    }
    Ok(())
}

/// Says of items just drawn how reliable their targets are. Each episode is looked at once, one at a time: others have
/// their turn between.
async fn rely(context: &Context, table: usize, batch: &mut BatchBuilder) -> Result<(), Refusal> {
    let mut episodes: Vec<Episode> = Vec::new();
    let mut reliabilities = Vec::new();
    for (key, lane, first) in batch.items() {
        if !episodes.iter().any(|episode| episode.holds(lane, first)) {
            episodes.extend(context.shard.look(|shard| shard.episode(table, key)).await?);
        }
        let episode = episodes.iter().find(|episode| episode.holds(lane, first));
        // An item that has left gets no priority any more.
        reliabilities.push(episode.map_or(1.0, |episode| episode.reliability(first)));
    }
    batch.rely(reliabilities);
    Ok(())
}

async fn next(
    context: &Context,
    requests: &mut Streaming<v1::SampleRequest>,
) -> Result<Option<v1::SampleRequest>, End> {
    requests.message().await.map_err(|status| End::Transport(context.edge.refuse(status)))
}
