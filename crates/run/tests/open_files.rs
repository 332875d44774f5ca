//! A separate test process, because it uses up its own file descriptors.

use std::fs::File;

use run::checkpoint::{self, Checkpoint, CheckpointError};
use run::shortage::is_shortage;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn a_checkpoint_without_a_free_file_descriptor_can_be_written_later_and_the_previous_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| {
        checkpoint::write(folder.path(), name, |writer| writer.file("a", |out| out.write_all(content)))
    };
    write("1", b"one").unwrap();
    write("best", b"one").unwrap();
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), ..limit }).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!taken.is_empty());
    // With none, one, two, … free descriptors it fails at another place each time, until it succeeds.
    let mut failures = 0;
    let mut persist = |name: &str, taken: &mut Vec<File>| {
        while let Err(error) = write(name, b"two") {
            assert!(matches!(&error, CheckpointError::Io { error, .. } if is_shortage(error)), "{error}");
            failures += 1;
            drop(taken.pop());
            assert!(folder.path().join("1/manifest.json").exists());
            assert!(folder.path().join("best/manifest.json").exists(), "the previous one stays");
        }
    };
    persist("2", &mut taken);
    persist("best", &mut taken);
    assert!(failures > 0);
    taken.clear();
    for (name, content) in [("1", b"one"), ("2", b"two"), ("best", b"two")] {
        assert_eq!(Checkpoint::find(folder.path(), Some(name)).unwrap().read("a").unwrap(), content);
    }
}
