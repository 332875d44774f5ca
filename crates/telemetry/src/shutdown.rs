//! Shutdown: signals, and exit when the parent process dies.

use std::io::{Read, stdin};

use tokio::signal::unix::{SignalKind, signal};

/// Exits this process at once when stdin closes.
///
/// The launcher holds the other end of the pipe and never writes to it. However the launcher dies, the kernel closes
/// the pipe, so its children exit too. Nothing is drained; SIGTERM requests a graceful shutdown. Call it after
/// [`init`](crate::init), so that the reason is logged.
pub fn exit_with_parent() {
    let read = || {
        // Writing the log may panic: the reader of stderr may have died with the parent.
        let _exit = ExitOnDrop;
        let (mut input, mut ignored) = (stdin().lock(), [0; 256]);
        // The library retries interrupted reads. Any other error also means that the parent is gone.
        while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        tracing::info!("stdin closed, exiting with the parent process (--exit-with-parent)");
    };
    std::thread::Builder::new()
        .name("parent-watch".into())
        .spawn(read)
        .expect("the system can start a thread");
}

struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        std::process::exit(0);
    }
}

/// Resolves on SIGTERM or SIGINT (Ctrl-C). Until the future is first polled, these signals kill the process.
pub async fn shutdown_signal() {
    let listen = |kind| signal(kind).expect("signal handlers can be installed inside a runtime");
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate()), listen(SignalKind::interrupt()));
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    tracing::info!(signal = name, "shutdown requested");
}
