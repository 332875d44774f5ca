//! Clients in a second language: one generated from the `.proto` files alone (`tests/python/client.py`), and our own
//! package (`clients/python`), installed as a user would and put to its own tests.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::process::Process;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Installs into a folder with pip, which `make setup` asks for anyway, and without a virtual environment, which some
/// systems pack apart.
fn install(into: &Path, what: &[&str]) {
    let pip = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
        .arg(into)
        .args(what)
        .current_dir(root())
        .output()
        .expect("python3 is needed for this test");
    assert!(pip.status.success(), "{}", String::from_utf8_lossy(&pip.stderr));
}

/// A folder under `target` with what is listed there, made once for each list of versions.
fn packages(requirements: &str) -> PathBuf {
    let list = fs::read_to_string(root().join(requirements)).unwrap();
    let versions: String = list
        .lines()
        .filter_map(|line| line.split_once("=="))
        .map(|(_, version)| format!("-{version}"))
        .collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python{versions}"));
    if !place.exists() {
        // Another run of the tests may do the same: whoever is first puts it in place, and it is there whole.
        let unfinished = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        install(unfinished.path(), &["--requirement", requirements]);
        let _ = fs::rename(unfinished.path(), &place);
    }
    place
}

fn python(arguments: &[&str], path: &[&Path]) -> Output {
    Command::new("python3")
        .args(arguments)
        .current_dir(root())
        .env("PYTHONPATH", std::env::join_paths(path).unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("QUIVER_REPLAY_SERVER", env!("CARGO_BIN_EXE_quiver-replay-server"))
        .output()
        .unwrap()
}

#[test]
fn a_python_client_inserts_samples_updates_and_looks() {
    let packages = packages("tests/python/requirements.txt");
    let process = Process::start(None, &[]);
    let client = python(&["tests/python/client.py", "proto", &process.address.to_string()], &[&packages]);
    let said = String::from_utf8_lossy(&client.stderr);
    assert!(client.status.success(), "{said}\n{}", process.log());
    assert_eq!(String::from_utf8_lossy(&client.stdout), "all is well\n", "{said}");
}

#[test]
fn the_python_package_installs_is_typed_and_passes_its_tests() {
    let tools = packages("clients/python/tests/requirements.txt");
    let package = tempfile::tempdir().unwrap();
    // With the target directory of the tests, so that little is compiled twice.
    install(package.path(), &["--no-deps", "./clients/python"]);
    let path = [package.path(), &tools];
    let mypy = python(&["-m", "mypy", "--strict", "clients/python/python/quiver_replay"], &path);
    assert!(mypy.status.success(), "{}", String::from_utf8_lossy(&mypy.stdout));
    let tests = python(&["-m", "unittest", "discover", "clients/python/tests"], &path);
    let said = String::from_utf8_lossy(&tests.stderr);
    assert!(tests.status.success() && said.trim_end().ends_with("OK"), "{said}");
}
