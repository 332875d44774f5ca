//! A separate test process, because it lowers its own limit of open files.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::fs;
use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use rpc::address::Address;
use rpc::channel::channel;
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::serve::Listener;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::net::TcpStream;
use tonic::service::Routes;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn a_server_out_of_file_descriptors_recovers_when_some_are_free() {
    let registry = Registry::new();
    let edge = Edge::register(&registry).unwrap();
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), edge, Gate::open()).await.unwrap();
    let address = listener.address().clone();
    let Address::Tcp(authority) = &address else { panic!("not TCP") };
    // The kernel completes these connections before the server accepts them.
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(TcpStream::connect(authority).await.unwrap());
    }
    let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(open + 10), ..limit }).unwrap();

    let server = tokio::spawn(listener.serve(Routes::default(), std::future::pending()));
    let errors = || {
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        !text.contains("quiver_rpc_accept_errors_total 0")
    };
    while !errors() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(clients);
    let mut client = HealthClient::new(channel(&address));
    while client.check(HealthCheckRequest { service: String::new() }).await.is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!server.is_finished());
}
