//! The listener as Prometheus, a probe and a launcher see it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use clap::Parser;
use prometheus::{IntCounter, Registry};
use telemetry::{Health, TelemetryArgs};

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    telemetry: TelemetryArgs,
}

fn args(flags: &[&str]) -> TelemetryArgs {
    Args::parse_from([&["program"], flags].concat()).telemetry
}

async fn get(address: SocketAddr, path: &'static str) -> String {
    let request = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    tokio::task::spawn_blocking(request).await.unwrap()
}

#[tokio::test]
async fn metrics_health_and_the_status_file_are_there() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("status-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("status.json");
    let args = args(&["--status-file", file.to_str().unwrap()]);
    let (registry, health) = (Registry::new(), Health::new());
    let counter = IntCounter::new("actor_frames_total", "Frames played").unwrap();
    registry.register(Box::new(counter.clone())).unwrap();
    counter.inc_by(5);
    let address = telemetry::serve(&args, "actor-0", registry.clone(), health.clone()).await.unwrap();
    assert!(address.ip().is_loopback() && address.port() != 0);

    let status = std::fs::read_to_string(&file).unwrap();
    let pid = std::process::id();
    assert_eq!(status, format!("{{\"name\":\"actor-0\",\"pid\":{pid},\"metrics\":\"http://{address}\"}}\n"));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
    std::fs::remove_dir_all(directory).unwrap();

    let metrics = get(address, "/metrics").await;
    assert!(
        metrics.starts_with("HTTP/1.1 200 OK") && metrics.contains("text/plain; version=0.0.4"),
        "{metrics}"
    );
    assert!(metrics.contains("\nactor_frames_total 5\n") && metrics.contains("\nprocess_cpu_seconds_total "));
    assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 503"));
    health.waiting("the learner");
    let answer = get(address, "/healthz").await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("waiting for the learner\n"),
        "{answer}"
    );
    assert!(get(address, "/secrets").await.starts_with("HTTP/1.1 404"));

    let taken = format!("{address}");
    let again =
        telemetry::serve(&self::args(&["--metrics-listen", &taken]), "b", Registry::new(), health).await;
    assert!(again.unwrap_err().to_string().contains("choose another --metrics-listen"));
}
