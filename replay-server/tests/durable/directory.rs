//! What a shard does with a data directory that is not as it left it, not for it, or not large enough.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::v1;
use tonic::Code;

use crate::common::process::Process;
use crate::common::*;

/// A data directory, and how to start a shard on it.
struct Data {
    directory: tempfile::TempDir,
}

impl Data {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn flags(&self) -> [&str; 2] {
        ["--data-dir", self.directory.path().to_str().unwrap()]
    }

    fn start(&self) -> Process {
        Process::start(None, &self.flags())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("slot-0").join(name)
    }

    /// Changes a file that no process uses.
    fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(name)).unwrap();
        change(&mut bytes);
        fs::write(self.file(name), bytes).unwrap();
    }

    /// A configured shard that has stored `chunks` chunks of 4 steps.
    async fn filled(chunks: u64) -> (Self, v1::ShardStatus) {
        let data = Self::new();
        let mut process = data.start();
        let mut client = client(&process.address);
        grant_inserts(&mut client, 1000).await;
        let _writing = write(&mut client, 0..chunks).await;
        let shard = state(&mut client).await.shard.unwrap();
        process.kill();
        (data, shard)
    }
}

/// Kinds of damage that were counted.
fn damaged(process: &Process) -> [f64; 5] {
    ["chunk", "priority", "lane", "item", "state"]
        .map(|kind| process.metric(&format!("quiver_replay_damaged_total{{kind=\"{kind}\"}}")))
}

/// Where these bytes are in a file.
fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|window| window == part).expect("they are there")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_directory_holds_is_for_one_run_and_for_ever() {
    let (data, before) = Data::filled(3).await;
    let process = data.start();
    let mut client = client(&process.address);
    // It knows all that before a learner has said anything.
    let info = state(&mut client).await;
    assert_eq!((info.run.as_str(), info.store, info.durable), (RUN, Some(store()), true));
    let stranger = v1::GrantRequest { caller: Some(proto::caller("run-2")), ..grant(1, None) };
    let part = "this shard belongs to run \"run-1\", the caller to run \"run-2\"";
    refused(client.grant(stranger).await, Code::FailedPrecondition, part);
    type Change = fn(&mut v1::Store);
    let changes: [(Change, &str); 5] = [
        (|store| store.tables[0].sampler = "uniform".into(), "sampler proportional, not uniform"),
        (|store| store.stack = 2, "stack 4, not 2"),
        (|store| store.codec = "delta".into(), "codec none, not delta"),
        (|store| store.bytes_max *= 2, "bytes_max 1048576, not 2097152"),
        (|store| store.tables.push(table("other")), "number of tables 1, not 2"),
    ];
    for (change, part) in changes {
        let mut other = store();
        change(&mut other);
        let status = refused(client.grant(grant_with(other, None)).await, Code::FailedPrecondition, part);
        assert_status(&status, Code::FailedPrecondition, "give the shard an empty data directory");
    }
    // Writers of another run are refused at once, without a learner.
    let other = v1::InsertHello { caller: Some(proto::caller("run-2")), ..hello(0, 1) };
    let writing = Writing::open(&mut client, other).await;
    assert_status(&writing.refusal().await, Code::FailedPrecondition, part);

    client.grant(grant(1, None)).await.unwrap();
    let after = state(&mut client).await;
    let shard = after.shard.unwrap();
    assert_eq!(v1::ShardStatus { allowance: 1000, ..shard }, before);
    assert_eq!(after.recovered.unwrap(), v1::Recovered { chunks: 3, items: 11, ..v1::Recovered::default() });
    assert!(process.log().contains("recovery completed"), "{}", process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_learner_and_the_end_of_the_run_are_remembered() {
    let (data, _) = Data::filled(1).await;
    let mut process = data.start();
    let mut client = client(&process.address);
    client.grant(v1::GrantRequest { finished: true, ..grant(5, None) }).await.unwrap();
    process.kill();
    let process = data.start();
    let mut client = crate::common::client(&process.address);
    let part = "learner incarnation 4 was replaced by 5";
    refused(client.grant(grant(4, None)).await, Code::FailedPrecondition, part);
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    let finished = v1::insert_reply::Reply::Finished(v1::Finished {});
    assert_eq!(writing.reply().await.unwrap(), Some(finished));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_format_and_a_damaged_identity_are_not_touched() {
    let (data, _) = Data::filled(2).await;
    let whole = fs::read_to_string(data.file("shard.json")).unwrap();
    let other = whole.replace("\"format\": 2", "\"format\": 99");
    assert_ne!(other, whole);
    fs::write(data.file("shard.json"), other).unwrap();
    let said = Process::fails(&data.flags());
    assert!(said.contains("the data directory has format 99, but this version reads 2"), "{said}");
    assert!(said.contains(data.directory.path().to_str().unwrap()), "{said}");
    fs::write(data.file("shard.json"), &whole[..whole.len() / 2]).unwrap();
    let said = Process::fails(&data.flags());
    assert!(said.contains("shard.json is damaged"), "{said}");
    fs::write(data.file("shard.json"), whole).unwrap();
    let process = data.start();
    assert_eq!(table_status(&mut client(&process.address)).await.items, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_were_cut_short_or_are_gone_are_an_error_that_says_so() {
    let (data, before) = Data::filled(2).await;
    for name in ["ring", "table-0", "marks", "state"] {
        let whole = fs::read(data.file(name)).unwrap();
        let file = OpenOptions::new().write(true).open(data.file(name)).unwrap();
        file.set_len(whole.len() as u64 - 24).unwrap();
        let said = Process::fails(&data.flags());
        let (length, cut) = (whole.len(), whole.len() - 24);
        assert!(said.contains(&format!("the replay's {name}")), "{said}");
        assert!(said.contains(&format!("the file has {cut} bytes, expected {length}")), "{said}");
        fs::remove_file(data.file(name)).unwrap();
        let said = Process::fails(&data.flags());
        assert!(said.contains(&format!("the replay's {name}")) && said.contains("No such file"), "{said}");
        fs::write(data.file(name), whole).unwrap();
    }
    // Nothing was changed by all that.
    let process = data.start();
    let shard = state(&mut client(&process.address)).await.shard.unwrap();
    assert_eq!(v1::ShardStatus { allowance: 1000, ..shard }, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_frame_costs_the_items_that_need_it_and_no_others() {
    let (data, before) = Data::filled(6).await;
    // Step 13 is in the fourth chunk. Items from step 11 to 18 need a step of that.
    data.edit("ring", |ring| {
        let at = find(ring, &frame(0, 0, 13));
        ring[at + 5] ^= 0x10;
    });
    let process = data.start();
    assert!(process.log().contains("recovery completed with data loss"), "{}", process.log());
    let [chunks, priorities, lanes, items, state_pages] = damaged(&process);
    assert_eq!((chunks, priorities, lanes, state_pages), (1.0, 0.0, 0.0, 0.0));
    let mut client = client(&process.address);
    let info = state(&mut client).await;
    let shard = info.shard.unwrap();
    assert_eq!(shard.id, before.id);
    // Keys that were given out may be of what is lost, so they all mean nothing.
    assert_ne!(shard.incarnation, before.incarnation);
    assert_eq!(shard.counters.unwrap(), v1::Counters::default());
    assert_eq!(info.recovered.unwrap().damaged_chunks, 1);
    assert_eq!(before.tables[0].items - shard.tables[0].items, items as u64);
    let inspected = client.inspect(v1::InspectRequest { top: 1000, ..Default::default() }).await.unwrap();
    let top = batch(inspected.into_inner().top);
    let mut firsts: Vec<u64> = top.items().map(|item| item.first_step()).collect();
    firsts.sort_unstable();
    let whole: Vec<u64> = (0..11).chain(19..23).collect();
    assert_eq!(firsts, whole);
    for item in top.items() {
        let looked = client.get_item(look(item.key())).await.unwrap().into_inner();
        assert_frames(&batch(looked.batch).items().next().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_is_reported_once_and_the_shard_continues_with_what_is_left() {
    let (data, _) = Data::filled(6).await;
    data.edit("ring", |ring| {
        let at = find(ring, &frame(0, 0, 13));
        ring[at + 5] ^= 0x10;
    });
    let mut process = data.start();
    let shard = state(&mut client(&process.address)).await.shard.unwrap();
    process.kill();
    let process = data.start();
    let mut client = client(&process.address);
    let again = state(&mut client).await.shard.unwrap();
    assert_eq!((again.incarnation, again.tables[0].items), (shard.incarnation, 15));
    assert_eq!(damaged(&process), [0.0; 5]);
    // Its lane continues.
    grant_inserts(&mut client, 1000).await;
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    assert!(writing.write(chunk(0, 1, 0, 5)).await.duplicate);
    assert_eq!(writing.write(chunk(0, 1, 0, 6)).await.items, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_a_priority_costs_that_priority() {
    let (data, before) = Data::filled(2).await;
    // The third item's slot: number, priority, times sampled, checksum.
    data.edit("table-0", |slots| slots[2 * 24 + 9] ^= 1);
    let process = data.start();
    assert_eq!(damaged(&process), [0.0, 1.0, 0.0, 0.0, 0.0]);
    let mut client = client(&process.address);
    let shard = state(&mut client).await.shard.unwrap();
    assert_ne!(shard.incarnation, before.incarnation);
    // It has the one that it came with.
    assert_eq!((shard.tables[0].items, shard.tables[0].mass), (7, 28.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_that_cannot_be_read_begin_anew() {
    let (data, before) = Data::filled(2).await;
    data.edit("state", |state| [20, 2048 + 20].into_iter().for_each(|at| state[at] ^= 1));
    let process = data.start();
    assert_eq!(damaged(&process)[4], 1.0);
    let shard = state(&mut client(&process.address)).await.shard.unwrap();
    assert_ne!(shard.incarnation, before.incarnation);
    assert_eq!((shard.tables[0].items, shard.tables[0].inserts), (7, 0));
    assert_eq!(shard.tables[0].largest_priority, 7.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_shards_share_a_directory_and_each_is_always_one_of_the_two() {
    let data = Data::new();
    let identities = async |processes: [&Process; 2]| {
        let mut all = Vec::new();
        for process in processes {
            let shard = state(&mut client(&process.address)).await.shard.unwrap();
            all.push((shard.id, shard.incarnation));
        }
        all.sort();
        all
    };
    let (mut one, mut other) = (data.start(), data.start());
    for process in [&one, &other] {
        let mut client = client(&process.address);
        client.grant(grant(1, None)).await.unwrap();
    }
    let first = identities([&one, &other]).await;
    assert_ne!(first[0].0, first[1].0);
    assert!(data.directory.path().join("slot-1/ring").exists());
    assert!(!data.directory.path().join("slot-2").exists());
    // The first process to return may take either slot.
    other.kill();
    one.kill();
    let (one, other) = (data.start(), data.start());
    assert_eq!(identities([&one, &other]).await, first);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_refused_leaves_nothing_behind() {
    let data = Data::new();
    let mut process = data.start();
    let mut client = client(&process.address);
    let before = state(&mut client).await.shard.unwrap();
    let bad = v1::Store { frame_bytes: 0, ..store() };
    refused(client.grant(grant_with(bad, None)).await, Code::InvalidArgument, "frame_bytes");
    process.kill();
    let process = data.start();
    let mut client = crate::common::client(&process.address);
    let info = state(&mut client).await;
    assert_eq!((info.run.as_str(), info.store, info.shard.unwrap().id), ("", None, before.id));
    client.grant(grant(1, None)).await.unwrap();
}

/// A command that becomes a shard which alone sees a small disk at this place. `None` where that takes more rights.
fn with_small_disk(place: &Path) -> Option<Command> {
    let mut command = Command::new("unshare");
    let script = "mount -t tmpfs -o size=8m none \"$0\" && exec \"$@\"";
    command.args(["-rm", "sh", "-c", script]).arg(place);
    let mut trial = Command::new("unshare");
    trial.args(["-rm", "sh", "-c", script]).arg(place).arg("true");
    trial.output().is_ok_and(|trial| trial.status.success()).then_some(command)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_found_before_anything_is_promised() {
    let data = Data::new();
    let Some(mut command) = with_small_disk(data.directory.path()) else {
        println!("skipped: no right to mount a small disk");
        return;
    };
    command.arg(env!("CARGO_BIN_EXE_quiver-replay-server"));
    let process = Process::spawn_by(command, None, &data.flags()).served();
    let mut client = client(&process.address);
    let large = v1::Store { bytes_max: 64 << 20, ..store() };
    let part = "cannot allocate 67108864 bytes for the replay's ring";
    let status = refused(client.grant(grant_with(large, None)).await, Code::ResourceExhausted, part);
    assert_status(&status, Code::ResourceExhausted, "No space left on device");
    // What was taken in vain was given back.
    client.grant(grant(1, None)).await.unwrap();
    let larger = client.configure(configure(Some(1 << 20), None)).await;
    refused(larger, Code::ResourceExhausted, "the replay's table-0");
    assert_eq!(state(&mut client).await.store, Some(store()));
    grant_inserts(&mut client, 10).await;
    let mut writing = Writing::open(&mut client, hello(0, 1)).await;
    assert_eq!(writing.write(chunk(0, 1, 0, 0)).await.items, 3);
}
