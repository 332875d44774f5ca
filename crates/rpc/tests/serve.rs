//! The behaviour that all servers share, tested with a server without routes.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use prometheus::Registry;
use rpc::address::Address;
use rpc::channel::channel;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Code;
use tonic::service::Routes;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

struct Running {
    address: Address,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

async fn bind(address: &Address) -> Result<Listener, String> {
    let edge = Edge::register(&Registry::new()).unwrap();
    Listener::bind(address, edge, Gate::open()).await.map_err(|error| error.to_string())
}

async fn start(address: &Address) -> Running {
    let listener = bind(address).await.unwrap();
    let address = listener.address().clone();
    let (stop, stopped) = oneshot::channel();
    let serve = async { listener.serve(Routes::default(), async { drop(stopped.await) }).await.unwrap() };
    Running { address, stop, task: tokio::spawn(serve) }
}

impl Running {
    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

async fn is_healthy(client: &mut HealthClient<rpc::channel::Channel>) -> Result<bool, Code> {
    let request = HealthCheckRequest { service: String::new() };
    match client.check(request).await {
        Ok(reply) => Ok(reply.into_inner().status == 1),
        Err(status) => Err(status.code()),
    }
}

fn socket(directory: &Path) -> Address {
    format!("unix:{}/s.sock", directory.display()).parse().unwrap()
}

#[tokio::test]
async fn health_and_reflection_are_served_at_the_real_port() {
    let running = start(&"127.0.0.1:0".parse().unwrap()).await;
    assert_ne!(running.address.to_string(), "127.0.0.1:0");
    assert_eq!(is_healthy(&mut HealthClient::new(channel(&running.address))).await, Ok(true));

    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let request = tonic_reflection::pb::v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel(&running.address));
    let mut replies = client.server_reflection_info(tokio_stream::once(request)).await.unwrap().into_inner();
    let reply = replies.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = reply else { panic!("{reply:?}") };
    let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
    for name in ["quiver.v1.Replay", "quiver.v1.Learner", "grpc.health.v1.Health"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    running.stop().await;
}

#[tokio::test]
async fn a_client_may_start_first_and_reconnects_to_a_restarted_server() {
    let directory = tempfile::tempdir().unwrap();
    let address = socket(directory.path());
    let mut client = HealthClient::new(channel(&address));
    assert_eq!(is_healthy(&mut client).await, Err(Code::Unavailable));
    for _ in 0..3 {
        let running = start(&address).await;
        // The first call after a restart may still use the old connection.
        while is_healthy(&mut client).await != Ok(true) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.stop().await;
    }
}

#[tokio::test]
async fn a_socket_file_is_private_and_removed_with_its_server() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let running = start(&socket(directory.path())).await;
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    running.stop().await;
    assert!(!path.exists());
}

#[tokio::test]
async fn a_stale_socket_is_replaced_and_a_live_one_or_a_file_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (address, path) = (socket(directory.path()), directory.path().join("s.sock"));
    // Like the socket file of a killed process.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let running = start(&address).await;
    let refused = bind(&address).await.err().unwrap();
    assert!(refused.contains("in use"), "{refused}");
    assert_eq!(is_healthy(&mut HealthClient::new(channel(&address))).await, Ok(true));

    // The server must not remove a file that replaced its socket.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "a file").unwrap();
    running.stop().await;
    let refused = bind(&address).await.err().unwrap();
    assert!(refused.contains("not a socket"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a file");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let running = start(&"127.0.0.1:0".parse().unwrap()).await;
    let refused = bind(&running.address).await.err().unwrap();
    assert!(refused.starts_with(&format!("cannot serve at {}: ", running.address)), "{refused}");
}
