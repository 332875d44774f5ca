//! Reads files of JSON lines, whatever a kill, a loss of power, a full disk or an editor left in them.
//!
//! A line that can't be read costs that line and nothing else: it is skipped, and its file and number are kept for the
//! caller to report. So no content of a record can keep a run from being resumed, shown or compared.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// Bytes of a line. An evaluation of 100,000 games, the most that the settings allow, has 2.5 MB.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// Bad lines that are reported one by one. A damaged file may have a million.
const REPORTED_MAX: usize = 5;

/// A line that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    pub path: PathBuf,
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what } = self;
        write!(formatter, "{} line {line} skipped: {what}", path.display())
    }
}

/// What a file of JSON lines holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines<T> {
    /// The values of all lines that can be read.
    pub values: Vec<T>,
    /// The first lines that can't.
    pub bad: Vec<BadLine>,
    /// Number of lines that can't.
    pub bad_count: usize,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { values: Vec::new(), bad: Vec::new(), bad_count: 0 }
    }
}

impl<T> Lines<T> {
    /// The values. Passes a line of text about each bad line to `report`, and one about those beyond the first few.
    pub fn reported(self, mut report: impl FnMut(&str)) -> Vec<T> {
        self.bad.iter().for_each(|bad| report(&bad.to_string()));
        if let Some(last) = self.bad.last()
            && self.bad_count > self.bad.len()
        {
            report(&format!(
                "{}: {} more lines skipped",
                last.path.display(),
                self.bad_count - self.bad.len()
            ));
        }
        self.values
    }

    fn skip(&mut self, path: &Path, line: usize, what: String) {
        self.bad_count += 1;
        if self.bad.len() < REPORTED_MAX {
            self.bad.push(BadLine { path: path.to_owned(), line, what });
        }
    }
}

/// Reads a file. An incomplete last line, which a kill or a writer at work leaves, is not a bad one.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Lines<T>> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut lines, mut text) = (Lines::default(), Vec::new());
    for number in 1.. {
        text.clear();
        if (&mut file).take(LINE_BYTES_MAX).read_until(b'\n', &mut text)? == 0 {
            break;
        }
        if text.ends_with(b"\n") {
            match serde_json::from_slice(&text) {
                Ok(value) => lines.values.push(value),
                Err(error) => lines.skip(path, number, error.to_string()),
            }
        } else if text.len() as u64 == LINE_BYTES_MAX {
            lines.skip(path, number, format!("longer than {LINE_BYTES_MAX} bytes"));
            // In one buffer's worth of memory.
            file.skip_until(b'\n')?;
        } else if let Ok(value) = serde_json::from_slice(&text) {
            // Complete except for its newline.
            lines.values.push(value);
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Episode, Evaluation};

    fn lines<T: DeserializeOwned>(content: &[u8]) -> Lines<T> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("episodes.jsonl");
        std::fs::write(&path, content).unwrap();
        read(&path).unwrap()
    }

    const GOOD: &str = r#"{"frames":4,"score":1.5,"steps":10,"truncated":false}"#;
    const GOOD_EVALUATION: &str = r#"{"frames":4,"updates":1,"player":"agent","policy":"greedy","mean":1.5,"standard_error":0.5,"scores":[1.0,2.0]}"#;

    #[test]
    fn a_bad_line_costs_that_line_and_is_named() {
        let huge = vec![b'x'; LINE_BYTES_MAX as usize + 100_000];
        let bad: [(&[u8], &str); 7] = [
            (b"", "EOF"),
            (b"{\"frames\":5,", "EOF"),
            (b"\0\0\0\0", "expected value"),
            (b"{\"frames\":4,\"score\":\"\xff\xfe\",\"steps\":1,\"truncated\":false}", "invalid"),
            (b"{\"frames\":4,\"score\":null,\"steps\":1,\"truncated\":false}", "null"),
            (b"{\"frames\":4,\"score\":1e999,\"steps\":1,\"truncated\":false}", "out of range"),
            (&huge, "longer than"),
        ];
        for (line, what) in bad {
            let content = [GOOD.as_bytes(), b"\n", line, b"\n", GOOD.as_bytes(), b"\n"].concat();
            let lines = lines::<Episode>(&content);
            assert_eq!((lines.values.len(), lines.bad_count), (2, 1), "{what}");
            assert!(lines.bad[0].line == 2 && lines.bad[0].what.contains(what), "{}", lines.bad[0].what);
        }
    }

    #[test]
    fn an_evaluation_with_an_infinite_mean_is_skipped() {
        let null = GOOD_EVALUATION.replace("\"mean\":1.5", "\"mean\":null");
        let read = lines::<Evaluation>(format!("{null}\n{GOOD_EVALUATION}\n").as_bytes());
        assert_eq!((read.values.len(), read.bad_count), (1, 1));
        let mut reported = Vec::new();
        assert_eq!(read.reported(|text| reported.push(text.to_owned())).len(), 1);
        assert!(reported[0].contains("episodes.jsonl line 1 skipped: invalid type: null"), "{reported:?}");
    }

    #[test]
    fn an_incomplete_last_line_is_no_damage() {
        for end in [&GOOD.as_bytes()[..GOOD.len() - 3], b"\0\0\0", b"{"] {
            let read = lines::<Episode>(&[GOOD.as_bytes(), b"\n", end].concat());
            assert_eq!((read.values.len(), read.bad_count), (1, 0));
        }
        assert_eq!(lines::<Episode>(format!("{GOOD}\n{GOOD}").as_bytes()).values.len(), 2);
    }

    #[test]
    fn a_damaged_file_is_reported_in_a_few_lines() {
        let read = lines::<Episode>("nonsense\n".repeat(1_000).as_bytes());
        assert!(read.values.is_empty());
        let mut reported = Vec::new();
        read.reported(|text| reported.push(text.to_owned()));
        assert_eq!(reported.len(), REPORTED_MAX + 1);
        assert!(reported[REPORTED_MAX].ends_with("995 more lines skipped"), "{reported:?}");
    }
}
