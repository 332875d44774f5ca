//! Lines of output. Errors are ignored: a closed or full stream must not stop training.

use std::io::{self, Write};

/// Prints a line of the result to stdout.
pub fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line about progress, or an error, to stderr.
pub fn print_note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}
