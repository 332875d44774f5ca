//! Ctrl-C and similar signals, as a flag to poll.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Whether a signal has asked to stop since the last poll.
pub struct Signals(Arc<AtomicBool>);

impl Signals {
    /// Installs handlers: from now on SIGINT, SIGTERM and SIGHUP only set the flag.
    pub fn catch() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // `nohup quiver train …` must outlive its terminal.
            if signal != SIGHUP || !is_ignored(signal) {
                signal_hook::flag::register(signal, asked.clone())?;
            }
        }
        Ok(Self(asked))
    }

    /// Sets the flag also when stdin closes.
    pub fn stop_on_stdin_end(&self) {
        let asked = self.0.clone();
        run::parent::on_exit(move || asked.store(true, Ordering::Relaxed));
    }

    /// True once per signal; two signals that arrive together count as one.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

fn is_ignored(signal: i32) -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| is_ignored_in(&status, signal))
}

/// Reads the mask `SigIgn` of `/proc/self/status`: hexadecimal, with signal 1 in its lowest bit.
fn is_ignored_in(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignored_signal_is_found_in_the_mask() {
        let status = "Name:\tquiver\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored_in(status, SIGHUP) && !is_ignored_in(status, SIGINT));
        assert!(!is_ignored_in("", SIGHUP));
    }
}
