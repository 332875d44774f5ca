//! Output of the commands. A closed pipe (`quiver games | head -1`) is not an error.

use std::io::{self, ErrorKind, Write};

/// Writes a line to standard output.
pub fn print_line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a line to standard error, where it stays out of pipes.
pub fn print_note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes an error as one line: causes after colons, no backtrace.
pub fn print_error(error: &anyhow::Error) {
    print_note(&format!("error: {}", one_line(&format!("{error:#}"))));
}

/// Joins lines: an error may quote a file or another program.
pub fn one_line(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_joined_and_empty_ones_dropped() {
        assert_eq!(one_line("a\n\n  b\n"), "a b");
    }
}
