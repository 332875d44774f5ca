//! What people see. A reader that has seen enough (`quiver games | head -1`) is no error.

use std::io::{self, ErrorKind, Write};

/// Writes text and a line end to standard output.
pub fn say(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a remark to standard error, where it stays out of pipes.
pub fn remark(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes an error as one line: causes after colons, no backtrace.
pub fn complain(error: &anyhow::Error) {
    remark(&format!("error: {}", one_line(&format!("{error:#}"))));
}

/// Joins lines, since an error may quote what a file or another program said.
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
