//! The log of a child: its stderr goes to a file, and its last lines are kept in memory to explain its exit.
//!
//! The learner creates the run directory, so the first lines are buffered until it exists.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

/// Lines kept to explain an exit; a panic with a backtrace takes about fifty.
const LAST_LINES: usize = 100;
/// Lines buffered until the file is open.
const EARLY_LINES_MAX: usize = 1_000;
/// At this size a file is rotated: it becomes `.old.log` and replaces the previous one. Enough for weeks of normal logs, and
/// a child that logs without end does not fill the disk.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// One child's log, over all its restarts.
#[derive(Debug, Default)]
pub struct Log {
    early: VecDeque<String>,
    last: VecDeque<String>,
    file: Option<(PathBuf, File, u64)>,
}

impl Log {
    /// Opens the file at `path` for appending and writes the buffered lines.
    pub fn open(&mut self, path: &Path) -> io::Result<()> {
        let file = File::options().create(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        self.file = Some((path.to_owned(), file, bytes));
        for line in std::mem::take(&mut self.early) {
            self.write(&line);
        }
        Ok(())
    }

    pub fn line(&mut self, line: &str) {
        push(&mut self.last, line, LAST_LINES);
        if self.file.is_some() { self.write(line) } else { push(&mut self.early, line, EARLY_LINES_MAX) }
    }

    /// Discards the last lines, because they belong to a process before the restart.
    pub fn clear_last_lines(&mut self) {
        self.last.clear();
    }

    /// Why the child exited: its last error line, else its panic message.
    pub fn reason(&self) -> Option<String> {
        let error = self.last.iter().rev().find_map(|line| line.strip_prefix("error: "));
        error.map(str::to_owned).or_else(|| {
            let at = self.last.iter().rposition(|line| line.contains("panicked at"))?;
            // The message is on the line below the location.
            Some(self.last.get(at + 1).unwrap_or(&self.last[at]).clone())
        })
    }

    /// The last line that is not empty.
    pub fn last_line(&self) -> Option<String> {
        self.last.iter().rev().find(|line| !line.is_empty()).cloned()
    }

    /// Writes a line to the file. An error is ignored: a log that can't be written must not stop training.
    fn write(&mut self, line: &str) {
        let Some((path, file, bytes)) = &mut self.file else { return };
        if *bytes >= FILE_BYTES_MAX && fs::rename(&*path, path.with_extension("old.log")).is_ok() {
            let Ok(fresh) = File::options().create(true).append(true).open(&*path) else { return };
            (*file, *bytes) = (fresh, 0);
        }
        let line = format!("{line}\n");
        if file.write_all(line.as_bytes()).is_ok() {
            *bytes += line.len() as u64;
        }
    }
}

fn push(lines: &mut VecDeque<String>, line: &str, most: usize) {
    if lines.len() == most {
        lines.pop_front();
    }
    lines.push_back(line.to_owned());
}

/// Calls `each` with every line until the pipe closes. A line longer than `bytes_max` is split.
pub fn read_lines(pipe: impl Read, bytes_max: u64, mut each: impl FnMut(&str)) {
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    while reader.by_ref().take(bytes_max).read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        each(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(lines: &[&str]) -> Option<String> {
        let mut log = Log::default();
        lines.iter().for_each(|line| log.line(line));
        log.reason()
    }

    #[test]
    fn the_last_error_or_panic_is_the_reason() {
        assert_eq!(reason(&["INFO started"]), None);
        assert_eq!(reason(&["error: a", "error: b", "INFO bye"]).as_deref(), Some("b"));
        let panic = ["thread 'main' panicked at src/x.rs:1:2:", "index out of bounds", "note: run with …"];
        assert_eq!(reason(&panic).as_deref(), Some("index out of bounds"));
        assert_eq!(reason(&panic[..1]).as_deref(), Some(panic[0]));
    }

    #[test]
    fn buffered_lines_reach_the_file_first_and_a_restart_clears_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        let mut log = Log::default();
        log.line("error: one");
        log.open(&path).unwrap();
        log.clear_last_lines();
        log.line("two");
        assert_eq!(fs::read_to_string(&path).unwrap(), "error: one\ntwo\n");
        assert_eq!(log.reason(), None);
    }

    #[test]
    fn a_large_file_is_rotated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.log");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX).unwrap();
        let mut log = Log::default();
        log.open(&path).unwrap();
        log.line("fresh");
        assert_eq!(fs::read_to_string(&path).unwrap(), "fresh\n");
        assert_eq!(fs::metadata(folder.path().join("a.old.log")).unwrap().len(), FILE_BYTES_MAX);
    }

    #[test]
    fn lines_are_bounded_and_need_not_be_text() {
        let mut lines = Vec::new();
        read_lines(&b"ab\r\n\xff\nlonger"[..], 4, |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["ab", "\u{fffd}", "long", "er"]);
    }
}
