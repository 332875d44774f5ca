//! Notices that the parent process has exited.

use std::io::{Read, stdin};
use std::thread;

/// Calls `exited` on another thread when stdin closes. The parent holds the other end of the pipe and never writes to
/// it; however the parent dies, the kernel closes the pipe.
pub fn on_exit(exited: impl FnOnce() + Send + 'static) {
    let read = move || {
        let (mut input, mut ignored) = (stdin().lock(), [0; 256]);
        // The library retries interrupted reads. Any other error also means that the parent is gone.
        while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        exited();
    };
    thread::Builder::new().name("parent-watch".into()).spawn(read).expect("a thread can be started");
}
