//! The same seed gives the same weights, whatever happens on the way.

use std::path::Path;

use crate::harness::{command, final_weights, order, succeed, wait_for_checkpoint};
use run::record;

/// Small, and with everything on that keeps state: prioritised sampling, n-step windows, several lanes.
const SETTINGS: [(&str, &str); 8] = [
    ("frames", "6000"),
    ("n_step", "3"),
    ("lanes", "2"),
    ("batch_size", "16"),
    ("samples_per_insert", "16"),
    ("evaluate_every_frames", "2000"),
    ("checkpoint_every_frames", "500"),
    ("evaluate_final_episodes", "4"),
];

fn with(setting: (&'static str, &'static str)) -> Vec<(&'static str, &'static str)> {
    SETTINGS.iter().copied().filter(|(key, _)| *key != setting.0).chain([setting]).collect()
}

fn train(path: &Path, settings: &[(&str, &str)]) -> String {
    succeed(&order(path, "cartpole", settings, false));
    final_weights(path)
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
    let first = train(&a, &SETTINGS);
    // Looking more often does not change what is learned.
    assert_eq!(first, train(&b, &with(("evaluate_every_frames", "700"))));
    assert_ne!(first, train(&c, &with(("seed", "1"))));
}

#[test]
fn a_killed_run_resumes_to_the_same_weights_and_the_same_record() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, killed) = (folder.path().join("straight"), folder.path().join("killed"));
    let expected = train(&straight, &SETTINGS);

    let mut child = command(&order(&killed, "cartpole", &SETTINGS, false)).spawn().unwrap();
    for least in [1_000, 3_000] {
        wait_for_checkpoint(&killed, least, &mut child);
        child.kill().unwrap(); // SIGKILL
        child.wait().unwrap();
        child = command(&order(&killed, "cartpole", &SETTINGS, true)).spawn().unwrap();
    }
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(final_weights(&killed), expected);
    assert_eq!(record::episodes(&killed).unwrap(), record::episodes(&straight).unwrap());
    assert_eq!(record::evaluations(&killed).unwrap(), record::evaluations(&straight).unwrap());
}

#[test]
fn a_stopped_run_prints_the_resume_command_and_ends_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, stopped) = (folder.path().join("straight"), folder.path().join("stopped"));
    let expected = train(&straight, &with(("strategy", "uniform")));

    let settings = with(("strategy", "uniform"));
    let mut child = command(&order(&stopped, "cartpole", &settings, false)).spawn().unwrap();
    wait_for_checkpoint(&stopped, 1_000, &mut child);
    signal(&child, "TERM");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("quiver train --resume"), "{text}");
    succeed(&order(&stopped, "cartpole", &settings, true));
    assert_eq!(final_weights(&stopped), expected);
}

/// The inner states of n-step windows are decoded from the restored replay.
#[test]
fn a_killed_run_with_the_entropies_of_the_target_ends_with_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, killed) = (folder.path().join("straight"), folder.path().join("killed"));
    let settings = with(("n_step_entropy", "target"));
    let expected = train(&straight, &settings);
    let mut child = command(&order(&killed, "cartpole", &settings, false)).spawn().unwrap();
    wait_for_checkpoint(&killed, 2_500, &mut child);
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    succeed(&order(&killed, "cartpole", &settings, true));
    assert_eq!(final_weights(&killed), expected);
    assert_ne!(train(&folder.path().join("behaviour"), &SETTINGS), expected);
}

/// The settings of the notebooks keep a count of episodes and bootstrap from last observations.
#[test]
fn a_killed_run_with_the_notebooks_settings_ends_with_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (straight, killed) = (folder.path().join("straight"), folder.path().join("killed"));
    let mut settings = with(("strategy", "per"));
    settings.extend([
        ("termination_reward", "-5"),
        ("bootstrap_terminal", "true"),
        ("target_period_episodes", "7"),
        ("epsilon", "1"),
        ("epsilon_final", "0.01"),
        ("epsilon_schedule", "exponential"),
    ]);
    let expected = train(&straight, &settings);
    let mut child = command(&order(&killed, "cartpole", &settings, false)).spawn().unwrap();
    wait_for_checkpoint(&killed, 2_500, &mut child);
    child.kill().unwrap(); // SIGKILL
    child.wait().unwrap();
    succeed(&order(&killed, "cartpole", &settings, true));
    assert_eq!(final_weights(&killed), expected);
    for (key, other) in [("target_period_episodes", "8"), ("termination_reward", "-4")] {
        let path = folder.path().join(key);
        settings.iter_mut().filter(|(own, _)| *own == key).for_each(|(_, value)| *value = other);
        assert_ne!(train(&path, &settings), expected, "{key}");
    }
}

fn signal(child: &std::process::Child, name: &str) {
    let script = format!("kill -{name} {}", child.id());
    assert!(std::process::Command::new("bash").args(["-c", &script]).status().unwrap().success());
}
