//! What a shard gives a learner: a batch is checked as a whole, then its frames are unpacked.
//!
//! Input: stack (1 byte), codec (1), size of a frame (1), frames too many in the array (1), then a reply with samples.

use prost::Message;
use proto::{BatchBuilder, BatchItem, PackedBatch, v1};
use replay::Store;
use replay::codec::{Codec, Decoder};

use crate::input::{Input, number_of};
use crate::small::{self, FRAME_BYTES, INCARNATION, STACK};

const ACTIONS: u16 = 4;
/// Items whose frames are unpacked.
const UNPACKED_MAX: usize = 64;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let stack = usize::from(input.byte()) % 8 + 1;
    let codec = input.codec();
    let frame_bytes = usize::from(input.byte()).max(1);
    let extra = usize::from(input.byte()) % 4;
    let Ok(reply) = v1::SampleReply::decode(input.rest()) else { return };
    let message = reply.batch.unwrap_or_default();
    let Ok(batch) = PackedBatch::new(message.clone(), stack, ACTIONS) else { return };
    assert_eq!(batch.len(), message.slots.len());
    let bytes: usize = batch.items().flat_map(|item| item.frames()).map(|(frame, _)| frame.len()).sum();
    assert_eq!(bytes, batch.frames().len(), "every byte is some item's");
    batch.items().for_each(|item| check(&item, stack));
    let mut decoder = Decoder::new(codec);
    for item in batch.items().take(UNPACKED_MAX) {
        let mut out = vec![0; (stack + item.length() + extra) * frame_bytes];
        let (frames, lead, length) = (item.frames(), item.lead(), item.length());
        if decoder.decode_item(frames, lead, length, stack, frame_bytes, &mut out).is_ok() {
            assert_eq!(out, one_by_one(&item, codec, stack, frame_bytes, extra));
        }
    }
}

fn check(item: &BatchItem<'_>, stack: usize) {
    assert!((1..=255).contains(&item.length()));
    assert!(item.probability() > 0.0 && item.priority().get() >= 0.0);
    assert_eq!(item.steps().len(), item.length());
    assert!(item.steps().all(|taken| taken.action < ACTIONS && taken.reward.is_finite()));
    let frames = item.frames().len();
    assert!(frames == 0 || (1..=stack).contains(&(frames - item.lead() - item.length())));
    let _ = (item.key(), item.lane(), item.first_step(), item.times_sampled(), item.age_inserts());
}

/// The same frames, each by itself: repeats of the first, all of them, repeats of the last.
fn one_by_one(item: &BatchItem<'_>, codec: Codec, stack: usize, frame_bytes: usize, extra: usize) -> Vec<u8> {
    let (mut decoder, mut frame, mut frames) = (Decoder::new(codec), vec![0; frame_bytes], Vec::new());
    for (packed, key) in item.frames() {
        let unpacked = if key {
            decoder.decode_key(packed, &mut frame)
        } else {
            decoder.apply_delta(packed, &mut frame)
        };
        unpacked.expect("a window that can be unpacked has only frames that can");
        frames.push(frame.clone());
    }
    frames.drain(..item.lead());
    let (first, last) = (frames[0].clone(), frames[frames.len() - 1].clone());
    let missing = stack + item.length() - frames.len();
    let all = std::iter::repeat_n(first, missing).chain(frames).chain(std::iter::repeat_n(last, extra));
    all.flatten().collect()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut store = Store::new(small::options(), INCARNATION).expect("a small store");
    small::fill(&mut store, 25);
    let mut seed = |points: &[f64], frames: bool| {
        let mut batch = BatchBuilder::new(points.len());
        let drawn = store.sample_at(0, points, |draw, item| batch.push(&draw, &item, frames));
        drawn.expect("there are items");
        let reply = v1::SampleReply { batch: Some(batch.finish()), ..v1::SampleReply::default() };
        let head = [STACK as u8 - 1, number_of(Codec::Delta), FRAME_BYTES as u8, 0];
        [&head[..], &reply.encode_to_vec()].concat()
    };
    vec![seed(&[0.1, 0.5, 0.9], true), seed(&[0.2], true), seed(&[0.3, 0.4], false), seed(&[], true)]
}
