//! Binding, and accepting connections within bounds.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;

use crate::address::Address;
use crate::connection::{Connection, PREFACE_TIMEOUT, Socket};
use crate::edge::Edge;
use crate::gate::Gate;

/// Connections at once. A thousand actors fit several times, and so do as many strangers who say nothing.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Connections that the system holds for us until we accept them.
const BACKLOG: u32 = 1024;
/// How long nothing is accepted after an error such as "too many open files", so that others can close theirs.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A bound socket. A socket file goes when this goes.
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

    /// With the real port.
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
                // An acknowledgement is small and must not wait for the one before.
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Sockets::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

/// Accepts for ever. Beyond `most` at once they are closed again, those
/// that are still becoming secure counted in: each has its place from the beginning.
pub(crate) async fn accept(
    sockets: &Sockets,
    most: usize,
    edge: &Edge,
    gate: &Gate,
    accepted: mpsc::Sender<Connection>,
    dropped: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(most));
    let mut admissions = JoinSet::new();
    loop {
        let socket = tokio::select! {
            socket = sockets.accept() => socket,
            Some(_) = admissions.join_next() => continue,
        };
        let socket = match socket {
            Ok(socket) => socket,
            Err(error) => {
                edge.accept_errors.inc();
                warn!(%error, "cannot accept a connection, going on");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else {
            edge.connections_beyond_limit.inc();
            continue;
        };
        let (dropped, edge, gate, accepted) = (dropped.clone(), edge.clone(), gate.clone(), accepted.clone());
        admissions.spawn(async move {
            let secured = match socket {
                Socket::Tcp(stream) => secure(stream, &gate, &edge).await,
                other => Some(other),
            };
            if let Some(socket) = secured {
                // Nobody takes it any more: the server ends.
                let _ = accepted.send(Connection::new(socket, place, dropped, &edge)).await;
            }
        });
    }
}

/// The same connection, once it is secure, or as it is if that is not asked for. It takes several messages, and whoever
/// sends none is not waited for.
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
                "a file that is no socket is in the way",
            ));
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "in use: another process answers there"));
        }
        fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile::new(path)?;
    // Nobody can connect before the socket listens, so there is no moment at which others may.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(Sockets::Unix(socket.listen(BACKLOG)?, file))
}

/// A socket file of ours, removed at the end unless another process has replaced it.
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
            // If it can't be removed, the next server finds that nobody listens to it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Lets this process open as many files as it may: many systems allow 1,024 unless asked for more, and a connection is
/// one. Every listener does it.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        warn!(%error, "cannot raise the limit of open files");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Registry;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn connections_beyond_the_limit_are_closed_and_places_are_given_again() {
        let sockets = Sockets::bind(&Address::Tcp("127.0.0.1:0".into())).await.unwrap();
        let Address::Tcp(authority) = sockets.address().unwrap() else { panic!("not TCP") };
        let edge = Edge::register(&Registry::new()).unwrap();
        let (accepted, mut connections) = mpsc::channel(10);
        let (_drop_all, dropped) = watch::channel(false);
        let connect = async || TcpStream::connect(&authority).await.unwrap();
        let story = async {
            let _clients = [connect().await, connect().await];
            let held = [connections.recv().await, connections.recv().await];
            let mut third = connect().await;
            assert_eq!(third.read(&mut [0]).await.unwrap(), 0);
            assert_eq!((edge.connections_beyond_limit.get(), edge.connections.get()), (1, 2));
            drop(held);
            let _fourth = connect().await;
            assert!(connections.recv().await.is_some());
        };
        let gate = Gate::open();
        tokio::select! {
            () = accept(&sockets, 2, &edge, &gate, accepted, dropped) => panic!("it accepts for ever"),
            () = story => {}
        }
    }
}
