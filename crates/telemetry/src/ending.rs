//! How a process learns that it shall end.

use std::io::{Read, stdin};

use tokio::signal::unix::{SignalKind, signal};

/// Ends this process at once when standard input ends.
///
/// A launcher holds the other end of the pipe and never writes to it. However the launcher dies, the system closes the
/// pipe, so its children die with it. There is nothing to drain: whoever wanted an orderly end sends SIGTERM.
pub fn lifeline() {
    let read = || {
        let (mut input, mut ignored) = (stdin().lock(), [0; 256]);
        // An interrupted read is repeated by the library. Any other error means that nobody is there either.
        while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        std::process::exit(0);
    };
    std::thread::Builder::new().name("lifeline".into()).spawn(read).expect("a thread can be started");
}

/// Resolves at SIGTERM or SIGINT (Ctrl-C). They end the process at once until this is first polled.
pub async fn terminated() {
    let listen = |kind| signal(kind).expect("signals can be listened to inside a runtime");
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "asked to stop");
}
