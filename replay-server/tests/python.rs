//! A client in a second language, generated from the `.proto` files alone: `tests/python/client.py`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::process::Process;

/// Installs what the client needs into a folder of its own under `target`, once for each list of versions. It takes
/// pip, which `make setup` asks for anyway, and no virtual environment, which some systems pack apart.
fn packages(requirements: &Path) -> PathBuf {
    let list = fs::read_to_string(requirements).unwrap();
    let versions: String = list
        .lines()
        .filter_map(|line| line.split_once("=="))
        .map(|(_, version)| format!("-{version}"))
        .collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python{versions}"));
    if !place.exists() {
        // Another run of the tests may do the same: whoever is first puts it in place, and it is there whole.
        let unfinished = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let pip = Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
            .arg(unfinished.path())
            .arg("--requirement")
            .arg(requirements)
            .output()
            .expect("python3 is needed for this test");
        assert!(pip.status.success(), "{}", String::from_utf8_lossy(&pip.stderr));
        let _ = fs::rename(unfinished.path(), &place);
    }
    place
}

#[test]
fn a_python_client_inserts_samples_updates_and_looks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let packages = packages(&root.join("tests/python/requirements.txt"));
    let process = Process::start(None, &[]);
    let client = Command::new("python3")
        .arg(root.join("tests/python/client.py"))
        .arg(root.join("proto"))
        .arg(process.address.to_string())
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "{said}\n{}", process.log());
    assert_eq!(String::from_utf8_lossy(&client.stdout), "all is well\n", "{said}");
}
