//! Clients in a second language: one generated from the `.proto` files alone (`tests/python/client.py`), and our own
//! package (`clients/python`), installed as a user would and put to its own tests.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::process::Process;
use rpc::secrets::make::{SecretsRequest, make};
use tempfile::TempDir;

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
        // Another run of the tests may do the same: the first one installs it, whole.
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

/// A shard that asks who calls, and the secrets of its cluster.
fn secured() -> (Process, TempDir) {
    let secrets = tempfile::tempdir().unwrap();
    make(secrets.path(), &SecretsRequest { hosts: Vec::new(), days: 30, mutual: None, renew: false })
        .unwrap();
    let own = secrets.path().join("replay").display().to_string();
    (Process::start(Some("127.0.0.1:0"), &["--secrets", &own]), secrets)
}

#[test]
fn a_python_client_inserts_samples_updates_and_looks() {
    check_client(&Process::start(None, &[]), "");
}

#[test]
fn a_python_client_does_the_same_over_tls_with_a_token() {
    let (process, secrets) = secured();
    check_client(&process, &secrets.path().join("client").display().to_string());
}

fn check_client(process: &Process, secrets: &str) {
    let packages = packages("tests/python/requirements.txt");
    // Others write it with no scheme.
    let address = process.address.to_string();
    let address = address.strip_prefix("http://").unwrap_or(&address);
    let client = python(&["tests/python/client.py", "proto", address, secrets], &[&packages]);
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
    let (process, secrets) = secured();
    let words = [&process.address.to_string(), &secrets.path().display().to_string()];
    let secured = python(&["clients/python/tests/secured.py", words[0], words[1]], &path);
    let said = String::from_utf8_lossy(&secured.stderr);
    assert_eq!(String::from_utf8_lossy(&secured.stdout), "all is well\n", "{said}");
}
