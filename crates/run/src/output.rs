//! Lines for people. A stream that is closed or full is no reason to stop training.

use std::io::{self, Write};

/// A line of the result.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// A line about how it goes, or an error.
pub fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
