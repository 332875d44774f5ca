//! What a writer sends: chunks become domain types, come back the same, and go into a store.
//!
//! Input: whether frames get the right checksum (1 byte), then requests (pieces).

use prost::Message;
use proto::limits::{CHUNK_ITEMS_MAX, CHUNK_STEPS_MAX};
use proto::v1::insert_request::Message as Request;
use proto::{convert, v1};
use replay::{Chunk, Store};

use crate::input::{Input, piece};
use crate::small::{self, FuzzLane, INCARNATION};

const ACTIONS: u16 = 4;
const REQUESTS_MAX: usize = 64;

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sealed = input.byte() & 1 == 1;
    let mut store = Store::new(small::options(), INCARNATION).expect("a small store");
    let mut requests = 0;
    while !input.is_empty() && requests < REQUESTS_MAX {
        requests += 1;
        let Ok(request) = v1::InsertRequest::decode(input.piece()) else { continue };
        let Some(Request::Chunk(mut message)) = request.message else { continue };
        if sealed {
            message.frames_crc32c = crc32c::crc32c(&message.frames);
        }
        let Ok(chunk) = convert::chunk(message, ACTIONS) else { continue };
        check(&chunk);
        insert(&mut store, &chunk);
    }
    small::put_to_use(&mut store);
}

fn check(chunk: &Chunk) {
    assert!((1..=CHUNK_STEPS_MAX).contains(&chunk.steps.len()) && chunk.items.len() <= CHUNK_ITEMS_MAX);
    assert!(chunk.steps.iter().all(|step| step.taken.is_none_or(|taken| taken.action < ACTIONS)));
    let message = convert::chunk_message(chunk.clone()).encode_to_vec();
    let message = v1::Chunk::decode(message.as_slice()).expect("what was encoded can be decoded");
    assert_eq!(convert::chunk(message, ACTIONS).as_ref(), Ok(chunk));
}

/// A chunk is stored whole or not at all.
fn insert(store: &mut Store, chunk: &Chunk) {
    let (before, counters) = (small::contents(store), (store.counters(), store.table_counters()));
    match store.insert(chunk) {
        Ok(inserted) if inserted.duplicate => assert_eq!(small::contents(store), before),
        Ok(inserted) => {
            assert_eq!(inserted.items + inserted.items_without_frames, chunk.items.len() as u64);
            assert_eq!(store.counters().steps, counters.0.steps + chunk.steps.len() as u64);
        }
        Err(_) => {
            assert_eq!((store.counters(), store.table_counters()), counters);
            assert_eq!(small::contents(store), before);
        }
    }
}

/// The requests of some lanes, by turns.
fn requests() -> Vec<Vec<u8>> {
    let mut lanes = [FuzzLane::new(0, 1, 0), FuzzLane::new(0, 1, 1), FuzzLane::new(1, 3, 0)];
    let chunks = (0..24).map(|number| lanes[number as usize % 7 % 3].chunk(1 + number % 5));
    let request = |chunk| v1::InsertRequest { message: Some(Request::Chunk(convert::chunk_message(chunk))) };
    chunks.map(|chunk| request(chunk).encode_to_vec()).collect()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let requests = requests();
    let seed = |requests: &[Vec<u8>]| {
        let pieces = requests.iter().flat_map(|request| piece(request));
        std::iter::once(1).chain(pieces).collect()
    };
    vec![seed(&requests), seed(&requests[..5]), seed(&requests[..1]), seed(&requests[7..12])]
}
