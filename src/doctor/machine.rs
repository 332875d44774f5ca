//! Checks of the machine: disk, memory, cores, a video encoder, a terminal.

use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use super::Finding::{self, Broken, Good, Poor};
use crate::runs::existing_ancestor;

const GB: f64 = 1e9;

/// A run with preset `paper-atari` needs this much: in lockstep its checkpoints contain the replay.
const DISK_LOW: f64 = 9.0 * GB;

/// The replay of preset `paper-atari` takes up to 3 GB; libtorch, networks and emulators take about 1 GB more.
const MEMORY_LOW: f64 = 4.0 * GB;

pub fn disk(run_dir: &Path) -> Finding {
    match rustix::fs::statvfs(existing_ancestor(run_dir)) {
        Ok(disk) => judge_disk((disk.f_bavail * disk.f_frsize) as f64, run_dir),
        Err(error) => Broken(format!(
            "can't read the free space at {}: {error}; choose another --run-dir",
            run_dir.display()
        )),
    }
}

fn judge_disk(free: f64, run_dir: &Path) -> Finding {
    let text = format!("{:.1} GB free for {}", free / GB, run_dir.display());
    if free < DISK_LOW {
        Poor(format!("{text}: free space, or choose another --run-dir"))
    } else {
        Good(text)
    }
}

pub fn memory() -> Finding {
    let available = fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(available_bytes);
    let limit =
        fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse::<f64>().ok());
    match (available, limit) {
        (Some(bytes), limit) => judge_memory(bytes.min(limit.unwrap_or(bytes))),
        (None, _) => Poor("available memory unknown: can't read /proc/meminfo".into()),
    }
}

/// `MemAvailable` of `/proc/meminfo`, which counts in kiB.
fn available_bytes(meminfo: &str) -> Option<f64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok()? * 1024.0)
}

fn judge_memory(bytes: f64) -> Finding {
    let text = format!("{:.1} GB available", bytes / GB);
    if bytes < MEMORY_LOW {
        Poor(format!("{text}: use --preset quick, or lower --replay-bytes"))
    } else {
        Good(text)
    }
}

pub fn cores() -> Finding {
    match thread::available_parallelism() {
        Ok(cores) => Good(cores.to_string()),
        Err(error) => Poor(format!("unknown number: {error}")),
    }
}

pub fn video() -> Finding {
    match find_program("ffmpeg") {
        Some(path) => Good(path.display().to_string()),
        None => {
            Poor("no ffmpeg: 'quiver play' writes .gif files or PNG frames; install ffmpeg for .mp4".into())
        }
    }
}

fn find_program(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

pub fn terminal() -> Finding {
    Good(
        if stderr().is_terminal() { "progress bar" } else { "no terminal: progress is printed as lines" }
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_disk_or_memory_is_a_warning_with_a_remedy() {
        let runs = Path::new("runs");
        assert_eq!(judge_disk(77.0 * GB, runs), Good("77.0 GB free for runs".into()));
        assert!(matches!(judge_disk(4.9 * GB, runs), Poor(text) if text.contains("--run-dir")));
        assert!(matches!(judge_memory(3.0 * GB), Poor(text) if text.contains("--replay-bytes")));
        assert_eq!(judge_memory(23.0 * GB), Good("23.0 GB available".into()));
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        assert_eq!(available_bytes("MemTotal: 9 kB\nMemAvailable:   2 kB\n"), Some(2048.0));
        assert_eq!(available_bytes("MemTotal: 9 kB\n"), None);
    }
}
