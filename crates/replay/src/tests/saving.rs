//! What a save refuses. That a sound one is exact is in `model`.

use std::io::{self, Write};

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::options;
use super::writer::LaneWriter;
use crate::check::check_state;
use crate::{LaneKey, LoadError, Sampler, Table, TableOptions};

/// A table with wrapped ring, evicted items, a lost chunk and two lanes.
fn used_table(sampler: Sampler) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let options = TableOptions { capacity: 20, bytes_max: 400, sampler, ..options() };
    let mut table = Table::new(options).unwrap();
    let lane = |lane| LaneWriter::new(LaneKey { actor: 3, incarnation: 1, lane }, 2);
    let mut writers = [lane(0), lane(1)];
    for turn in 0..60 {
        for writer in &mut writers {
            let chunk = writer.chunk(&mut rng);
            if turn != 55 {
                table.insert(chunk).unwrap();
            }
        }
    }
    table.sample(10, true, &mut rng).unwrap();
    assert!(table.counters().lost_chunks > 0 && table.counters().evicted > 0);
    table
}

fn saved(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.save(&mut bytes).unwrap();
    bytes
}

fn load(options: &TableOptions, bytes: &[u8]) -> Result<Table, LoadError> {
    Table::load(options.clone(), &mut &bytes[..])
}

#[test]
fn an_empty_table_comes_back() {
    let table = Table::new(options()).unwrap();
    let loaded = load(table.options(), &saved(&table)).unwrap();
    assert_eq!(saved(&loaded), saved(&table));
    assert!(loaded.is_empty());
}

#[test]
fn bytes_after_a_save_are_left_to_the_caller() {
    let table = used_table(Sampler::Uniform);
    let mut bytes = saved(&table);
    bytes.extend(b"next");
    let mut input = &bytes[..];
    Table::load(table.options().clone(), &mut input).unwrap();
    assert_eq!(input, b"next");
}

#[test]
fn every_flipped_bit_and_every_cut_is_an_error() {
    for sampler in [Sampler::Proportional, Sampler::Uniform] {
        let table = used_table(sampler);
        let bytes = saved(&table);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(load(table.options(), &damaged).is_err(), "byte {at}");
            assert!(load(table.options(), &bytes[..at]).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn other_options_are_named() {
    let table = used_table(Sampler::Proportional);
    let bytes = saved(&table);
    let check = |change: fn(&mut TableOptions), message: &str| {
        let mut options = table.options().clone();
        change(&mut options);
        assert_eq!(load(&options, &bytes).err().unwrap().to_string(), message);
    };
    let end = "set it back or start afresh";
    check(|o| o.capacity = 21, &format!("saved table has capacity 20, not 21; {end}"));
    check(|o| o.bytes_max = 401, &format!("saved table has bytes_max 400, not 401; {end}"));
    check(|o| o.stack = 3, &format!("saved table has stack 4, not 3; {end}"));
    check(|o| o.frame_bytes = 7, &format!("saved table has frame_bytes 8, not 7; {end}"));
    let sampler = format!("saved table has sampler Proportional, not Uniform; {end}");
    check(|o| o.sampler = Sampler::Uniform, &sampler);
    check(|o| o.stack = 0, "stack must be from 1 to 255, got 0");
}

#[test]
fn another_file_is_foreign() {
    for bytes in [&b""[..], b"short", b"quivrep\x01 of a later version"] {
        assert!(matches!(load(&options(), bytes), Err(LoadError::Foreign)));
    }
}

#[test]
fn a_new_incarnation_makes_old_keys_stale() {
    let mut table = used_table(Sampler::Proportional);
    let key = table.sample(1, false, &mut ChaCha8Rng::seed_from_u64(1)).unwrap()[0].key;
    let options = TableOptions { incarnation: 8, ..table.options().clone() };
    let loaded = load(&options, &saved(&table)).unwrap();
    assert!(table.item(key).is_some());
    assert!(loaded.item(key).is_none());
}

#[test]
fn a_full_disk_is_reported_as_such() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let table = used_table(Sampler::Proportional);
    let size = saved(&table).len();
    for room in [0, 10, size - 1] {
        let error = table.save(&mut Full(room)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "room for {room}");
    }
    table.save(&mut Full(size)).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Checksums find accidents. A save with sound checksums and changed contents, as a bug or a
    /// stranger would make it, must still be refused or load as a table that keeps its promises.
    #[test]
    fn changed_contents_never_make_a_table_that_breaks(seed: u64, uniform: bool) {
        let sampler = if uniform { Sampler::Uniform } else { Sampler::Proportional };
        let table = used_table(sampler);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut state = postcard::to_stdvec(&table.state).unwrap();
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..state.len());
            state[at] = state[at].wrapping_add(rng.random_range(1..=255));
        }
        let Ok(changed) = postcard::from_bytes(&state) else { return Ok(()) };
        let mut forged = used_table(sampler);
        if check_state(&changed, table.options()).is_err() {
            return Ok(());
        }
        forged.state = changed;
        let mut bytes = Vec::new();
        // Places are not saved, so the state is given those of the table it was made from.
        for (segment, of) in forged.state.lanes.segments.iter_mut().zip(&table.state.lanes.segments) {
            for (step, of) in segment.steps.iter_mut().zip(&of.steps) {
                (step.place, step.length) = (of.place, of.length);
            }
        }
        forged.save(&mut bytes).unwrap();
        let Ok(mut loaded) = load(table.options(), &bytes) else { return Ok(()) };
        let mut writer = LaneWriter::new(LaneKey { actor: 9, incarnation: 1, lane: 0 }, 3);
        for _ in 0..30 {
            loaded.insert(writer.chunk(&mut rng)).unwrap();
            check_state(&loaded.state, loaded.options()).unwrap();
            for draw in loaded.sample(2, false, &mut rng).unwrap_or_default() {
                let view = loaded.item(draw.key).unwrap();
                prop_assert_eq!(view.steps().len(), view.length());
                prop_assert!(view.frames().count() >= 2);
            }
        }
    }
}
