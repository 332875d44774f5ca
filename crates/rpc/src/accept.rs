//! Binds a server's socket and accepts a bounded number of connections.
#![allow(clippy::disallowed_methods, reason = "the connection owns its timeouts and retries")]

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;

use crate::address::Address;
use crate::connection::{Connection, PREFACE_TIMEOUT, Socket};
use crate::edge::Edge;
use crate::gate::Gate;
use crate::slots::{NoSlot, Slots};

/// Maximum open connections: several times a thousand actors, and room for as many silent connections.
const CONNECTIONS_MAX: usize = 4096;
/// File descriptors that connections leave to the rest of the process: its libraries, files, checkpoints, own connections
/// and metrics. So callers cannot keep a checkpoint from being written.
const FILES_RESERVED: usize = 256;
/// Connections that the kernel queues until the server accepts them.
const BACKLOG: u32 = 1024;
/// Pause after an accept error such as "too many open files", so that open connections can close first.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket. Dropping it removes its socket file.
pub(crate) enum Sockets {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

impl Sockets {
    pub async fn bind(address: &Address) -> io::Result<Self> {
        raise_file_limit();
        match address {
            Address::Tcp(authority) => TcpListener::bind(authority).await.map(Sockets::Tcp),
            Address::Unix(path) => bind_unix(path).await,
        }
    }

    /// The bound address, with the real port.
    pub fn address(&self) -> io::Result<Address> {
        Ok(match self {
            Sockets::Tcp(listener) => Address::Tcp(listener.local_addr()?.to_string()),
            Sockets::Unix(_, file) => Address::Unix(file.path.clone()),
        })
    }

    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Sockets::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Without TCP_NODELAY a small acknowledgement would wait for the previous one to be acknowledged by
                // TCP.
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Sockets::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

/// Accepts connections forever. Connections beyond `limit`, or beyond half of it from one address, are closed at once. A
/// connection holds its slot from before the TLS handshake.
pub(crate) async fn accept(
    sockets: &Sockets,
    limit: usize,
    edge: &Edge,
    gate: &Gate,
    accepted: mpsc::Sender<Connection>,
    dropped: watch::Receiver<bool>,
) {
    let slots = Slots::new(limit);
    let mut handshakes = JoinSet::new();
    loop {
        let socket = tokio::select! {
            socket = sockets.accept() => socket,
            Some(_) = handshakes.join_next() => continue,
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                edge.accept_errors.inc();
                warn!(%error, open_connections = edge.connections.get(), "connection not accepted, retrying");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let slot = match slots.take(socket.address().map(|address| address.ip())) {
            Ok(slot) => slot,
            Err(NoSlot::Full) => {
                edge.connections_beyond_limit.inc();
                continue;
            }
            Err(NoSlot::Address) => {
                edge.connections_of_address.inc();
                continue;
            }
        };
        let (dropped, edge, gate, accepted) = (dropped.clone(), edge.clone(), gate.clone(), accepted.clone());
        // Each handshake runs in its own task, so a client that does not answer delays no other.
        handshakes.spawn(async move {
            let secured = match socket {
                Socket::Tcp(stream) => secure(stream, &gate, &edge).await,
                other => Some(other),
            };
            if let Some(socket) = secured {
                // An error means that the server is shutting down and no longer takes connections.
                let _ = accepted.send(Connection::new(socket, slot, dropped, &edge)).await;
            }
        });
    }
}

/// Performs the TLS handshake if the gate requires TLS; otherwise returns the connection as it is. `None` if the
/// handshake fails or takes longer than `PREFACE_TIMEOUT`.
async fn secure(stream: TcpStream, gate: &Gate, edge: &Edge) -> Option<Socket> {
    let Some(tls) = gate.tls() else { return Some(Socket::Tcp(stream)) };
    let address = stream.peer_addr().ok();
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    match timeout(PREFACE_TIMEOUT, tls.accept(stream)).await.unwrap_or_else(late) {
        Ok(stream) => Some(Socket::Tls(Box::new(stream.into()))),
        Err(error) => {
            edge.cut_off.not_tls.inc();
            gate.log_handshake(address, &error);
            None
        }
    }
}

/// Binds a socket file of mode 0600.
async fn bind_unix(path: &Path) -> io::Result<Sockets> {
    if let Ok(metadata) = fs::symlink_metadata(path) {
        if !metadata.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket exists at this path; remove it or choose another path",
            ));
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "in use: another process listens on this socket",
            ));
        }
        fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile::new(path)?;
    // No client can connect before `listen`, so no other user can connect before the mode is set.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(Sockets::Unix(socket.listen(BACKLOG)?, file))
}

/// A socket file that this process created. Dropping it removes the file, unless another process has replaced it.
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)? })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // If removing fails, the next server detects the stale file and replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// How many connections a listener of this process may have open.
pub(crate) fn connections_max() -> usize {
    let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
    connections_within(files)
}

/// How many connections fit into this limit of open files.
fn connections_within(files: usize) -> usize {
    let rest = files.saturating_sub(FILES_RESERVED).max(files / 2);
    rest.clamp(1, CONNECTIONS_MAX)
}

/// Raises the limit of open files to the hard limit. Many systems default to 1,024, and every connection is an open
/// file. Every listener calls this.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let current = limit.current;
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, limit = current, wanted = limit.maximum, "open-file limit not raised; connections may be refused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Registry;
    use tokio::io::AsyncReadExt;

    #[test]
    fn connections_leave_file_descriptors_for_checkpoints() {
        for (files, connections) in [(usize::MAX, 4096), (4096, 3840), (1024, 768), (300, 150), (1, 1)] {
            assert_eq!(connections_within(files), connections, "{files}");
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_limit_are_closed_and_slots_are_reused() {
        let sockets = Sockets::bind(&Address::Tcp("127.0.0.1:0".into())).await.unwrap();
        let Address::Tcp(authority) = sockets.address().unwrap() else { panic!("not TCP") };
        let edge = Edge::register(&Registry::new()).unwrap();
        let (accepted, mut connections) = mpsc::channel(10);
        let (_drop_all, dropped) = watch::channel(false);
        let connect = async || TcpStream::connect(&authority).await.unwrap();
        let scenario = async {
            let _clients = [connect().await, connect().await];
            let held = [connections.recv().await, connections.recv().await];
            let mut third = connect().await;
            assert_eq!(third.read(&mut [0]).await.unwrap(), 0);
            assert_eq!((edge.connections_of_address.get(), edge.connections.get()), (1, 2));
            drop(held);
            let _fourth = connect().await;
            assert!(connections.recv().await.is_some());
        };
        let gate = Gate::open();
        tokio::select! {
            () = accept(&sockets, 4, &edge, &gate, accepted, dropped) => panic!("accept returned"),
            () = scenario => {}
        }
    }
}
