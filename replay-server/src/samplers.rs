//! One sample stream: a reply for each request, in order.

use proto::v1;
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
            let (mut batch, updated) = shard.sample(&learner, table, &points, allowance, updates.as_ref())?;
            if reliabilities {
                shard.rely(table, &mut batch);
            }
            Ok::<_, Refusal>(((batch, updated), shard.standing()))
        };
        let (sampled, time) = context.shard.timed(sample).await?;
        let ((batch, updated), standing) = sampled?;
        context.metrics.sample_seconds.observe(time.as_secs_f64());
        let shard = Some(context.shard_message(&standing));
        let (applied, stale) = (updated.applied, updated.stale);
        let reply = v1::SampleReply { batch: Some(batch.finish()), shard, applied, stale };
        replies.send(Ok(reply)).await.map_err(|_| End::Gone)?;
        request = next(context, &mut requests).await?;
    }
    Ok(())
}

async fn next(
    context: &Context,
    requests: &mut Streaming<v1::SampleRequest>,
) -> Result<Option<v1::SampleRequest>, End> {
    requests.message().await.map_err(|status| End::Transport(context.edge.refuse(status)))
}
