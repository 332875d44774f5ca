//! Shutdown: signals, and exit when the parent process dies.

use std::io::{Read, stdin};
use std::sync::mpsc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// How long the last log line may delay the exit.
const LOG_WAIT_MAX: Duration = Duration::from_secs(1);

/// Exits this process at once when stdin closes.
///
/// The launcher holds the other end of the pipe and never writes to it. However the launcher dies, the kernel closes
/// the pipe, so its children exit too. Nothing is drained; SIGTERM requests a graceful shutdown. Call it after
/// [`init`](crate::init), so that the reason is logged.
pub fn exit_with_parent() {
    let read = || {
        let (mut input, mut ignored) = (stdin().lock(), [0; 256]);
        // The library retries interrupted reads. Any other error also means that the parent is gone.
        while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        // Logged by another thread: a full pipe behind stderr must not keep this process alive.
        let (done, logged) = mpsc::channel();
        let log = move || {
            tracing::info!("stdin closed, exiting with the parent process (--exit-with-parent)");
            let _ = done.send(());
        };
        if std::thread::Builder::new().spawn(log).is_ok() {
            let _ = logged.recv_timeout(LOG_WAIT_MAX);
        }
        std::process::exit(0);
    };
    std::thread::Builder::new()
        .name("parent-watch".into())
        .spawn(read)
        .expect("the system can start a thread");
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
