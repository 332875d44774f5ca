//! The files of a shard, as a crash, a bad disk or a stranger left them: a store opens over them.
//!
//! Input: what is sealed (1 byte, see the constants), then the beginnings of all files one after the other: ring, both
//! copies of the state, the slots of two tables, some marks.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use replay::Store;
use replay::store::Storage;
use tempfile::TempDir;

use crate::input::Input;
use crate::seal::{self, MARK, SLOT, STATE};
use crate::small::{self, CAPACITIES, INCARNATION, RING_BYTES};

const SALT: u64 = 0x1234_5678_9abc_def1;
const MARKS: usize = 8;
/// More than there can be lanes in the ring.
const MARKS_USED_MAX: usize = 128;
/// Of all lanes that a store follows.
const MARKS_BYTES: u64 = 65_536 * MARK as u64;
const STATE_COPY_AT: usize = 2048;

const SEAL_RING: u8 = 1;
const SEAL_STATE: u8 = 2;
const SEAL_SLOTS: u8 = 4;
const SEAL_MARKS: u8 = 8;
/// One file is a few bytes short.
const CUT: u8 = 16;

const NAMES: [&str; 5] = ["ring", "state", "table-0", "table-1", "marks"];

thread_local! {
    static DIRECTORY: TempDir = TempDir::new().expect("a directory for the files of a shard");
}

pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let sealed = input.byte();
    let mut file = |bytes: usize| {
        let mut file = input.take(bytes).to_vec();
        file.resize(bytes, 0);
        file
    };
    let [mut ring, mut states] = [RING_BYTES, 2 * STATE].map(&mut file);
    let mut tables = CAPACITIES.map(|capacity| file(capacity * SLOT));
    let mut marks = file(MARKS * MARK);
    let when = |flag: u8, seal: &mut dyn FnMut()| {
        if sealed & flag != 0 {
            seal();
        }
    };
    when(SEAL_RING, &mut || seal::ring(&mut ring, SALT));
    when(SEAL_STATE, &mut || seal::states(&mut states));
    when(SEAL_SLOTS, &mut || tables.iter_mut().for_each(|slots| seal::each(slots, SLOT)));
    when(SEAL_MARKS, &mut || seal::each(&mut marks, MARK));
    let mut state = vec![0; 2 * STATE_COPY_AT];
    state[..STATE].copy_from_slice(&states[..STATE]);
    state[STATE_COPY_AT..STATE_COPY_AT + STATE].copy_from_slice(&states[STATE..]);
    let [main, other] = tables;
    DIRECTORY.with(|directory| {
        let directory = directory.path();
        for (name, bytes) in NAMES.iter().zip([ring, state, main, other, marks]) {
            write(&directory.join(name), &bytes);
        }
        if sealed & CUT != 0 {
            let path = directory.join(NAMES[usize::from(sealed >> 5) % NAMES.len()]);
            let length = fs::metadata(&path).expect("just written").len();
            set_length(&path, length - 1 - u64::from(sealed) % 64);
            assert!(open(directory).is_none(), "a file that is too short is refused");
        } else {
            recover(directory, small::counts_can_grow(data));
        }
    });
}

fn recover(directory: &Path, counts_can_grow: bool) {
    let (store, recovered) = open(directory).expect("files of the right size can be opened");
    let found = small::contents(&store);
    assert!(found.len() as u64 <= recovered.items);
    assert!(
        store.chunks() <= 2 * RING_BYTES / 128,
        "as many as the ring has room for, and as many lost ones"
    );
    drop(store);
    if !counts_can_grow {
        return;
    }
    // Damage is reported once.
    let (mut store, recovered) = open(directory).expect("it was open before");
    assert!(recovered.is_whole(), "{recovered:?}");
    assert_eq!(small::contents(&store), found);
    small::put_to_use(&mut store);
    let used = small::contents(&store);
    drop(store);
    let (store, recovered) = open(directory).expect("it was open before");
    assert!(recovered.is_whole(), "{recovered:?}");
    assert_eq!(small::contents(&store), used);
}

fn open(directory: &Path) -> Option<(Store, replay::store::Recovered)> {
    let storage = Storage::directory(directory, SALT, false);
    Store::open(small::options(), INCARNATION, storage).ok()
}

/// There are four megabytes of marks, nearly all of them never used: only their beginning is rewritten.
fn write(path: &Path, bytes: &[u8]) {
    let is_marks = path.ends_with("marks");
    let mut file = File::options().write(true).create(true).truncate(!is_marks).open(path).expect("a file");
    file.write_all(bytes).expect("a file is written");
    if is_marks {
        // A store puts its own lanes' marks behind these.
        file.write_all(&[0; MARKS_USED_MAX * MARK]).expect("a file is written");
        set_length(path, MARKS_BYTES);
    }
}

fn set_length(path: &Path, length: u64) {
    let file = File::options().write(true).open(path).expect("the file is there");
    file.set_len(length).expect("a file can have another length");
}

pub fn seeds() -> Vec<Vec<u8>> {
    let all = SEAL_RING | SEAL_STATE | SEAL_SLOTS | SEAL_MARKS;
    let mut seeds: Vec<_> = [0, 3, 9, 25, 60].map(|chunks| image(all, chunks)).into();
    seeds.extend([image(0, 25), image(CUT, 9), image(CUT | 64, 9)]);
    seeds
}

/// What so many chunks leave in the files.
fn image(sealed: u8, chunks: u64) -> Vec<u8> {
    let directory = TempDir::new().expect("a directory for a seed");
    let storage = Storage::directory(directory.path(), SALT, true);
    let (mut store, _) = Store::open(small::options(), INCARNATION, storage).expect("a new store");
    small::fill(&mut store, chunks);
    drop(store);
    let file = |name: &str| fs::read(directory.path().join(name)).expect("a store has its files");
    let state = file("state");
    let copies = [&state[..STATE], &state[STATE_COPY_AT..STATE_COPY_AT + STATE]].concat();
    let marks = &file("marks")[..MARKS * MARK];
    [&[sealed][..], &file("ring"), &copies, &file("table-0"), &file("table-1"), marks].concat()
}
