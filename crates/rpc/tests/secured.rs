//! Authentication of callers by a server with secrets. The server has no routes: an authorized caller receives
//! UNIMPLEMENTED, every other caller receives the reason of the refusal.
#![allow(clippy::disallowed_methods, reason = "the test waits for real processes and sockets")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use prometheus::{Registry, TextEncoder};
use proto::v1;
use proto::v1::learner_client::LearnerClient;
use proto::v1::replay_client::ReplayClient;
use rpc::address::Address;
use rpc::channel::{Channel, Credentials, channel};
use rpc::edge::Edge;
use rpc::gate::Gate;
use rpc::role::Role;
use rpc::secrets::make::{SecretsRequest, make};
use rpc::serve::Listener;
use rpc::shard::describe;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const PATIENCE: Duration = Duration::from_secs(60);

fn request() -> SecretsRequest {
    SecretsRequest { hosts: Vec::new(), days: 365, mutual: None, renew: false }
}

fn cluster(request: &SecretsRequest) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), request).unwrap();
    folder
}

struct Running {
    address: Address,
    registry: Registry,
}

impl Running {
    /// A server with the secrets in this folder, for as long as the test's runtime lives.
    async fn start(secrets: &Path) -> Self {
        let registry = Registry::new();
        let edge = Edge::register(&registry).unwrap();
        let gate = Gate::load(Some(secrets), &edge).unwrap();
        let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), edge, gate).await.unwrap();
        let address = listener.address().clone();
        tokio::spawn(listener.serve(Routes::default(), std::future::pending()));
        Self { address, registry }
    }

    fn channel(&self, secrets: &Path) -> Channel {
        Credentials::load(Some(secrets)).unwrap().channel(Role::Replay, &self.address)
    }

    fn metric(&self, name: &str) -> u64 {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    fn refused(&self, reason: &str) -> u64 {
        self.metric(&format!("quiver_rpc_requests_refused_total{{reason=\"{reason}\"}}"))
    }

    fn cut_off(&self) -> u64 {
        self.metric("quiver_rpc_connections_refused_total{reason=\"tls\"}")
    }
}

/// The status of a call on this channel that only learners and admins may make.
async fn info(channel: Channel) -> Status {
    let mut client = ReplayClient::new(channel);
    let answer = timeout(PATIENCE, client.info(v1::InfoRequest {})).await.unwrap();
    answer.expect_err("nothing is served here")
}

/// Asserts that no request arrived: the connection broke or could not be opened.
#[track_caller]
fn never_arrived(status: &Status) {
    assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{status:?}");
}

async fn check_roles(request: &SecretsRequest) {
    let secrets = cluster(request);
    let running = Running::start(&secrets.path().join("replay")).await;
    let expected = [
        ("actor", false, true, false),
        ("evaluator", false, true, false),
        ("learner", true, false, false),
        ("admin", true, false, true),
        ("client", true, true, true),
    ];
    for (who, may_ask, may_join, may_adjust) in expected {
        let channel = running.channel(&secrets.path().join(who));
        let mut learner = LearnerClient::new(channel.clone());
        let codes = [
            info(channel).await.code(),
            learner.join(v1::JoinRequest::default()).await.unwrap_err().code(),
            learner.adjust(v1::AdjustRequest::default()).await.unwrap_err().code(),
        ];
        let code = |may| if may { Code::Unimplemented } else { Code::PermissionDenied };
        assert_eq!(codes, [may_ask, may_join, may_adjust].map(code), "{who}");
    }
    assert_eq!([running.refused("wrong_role"), running.refused("no_token"), running.cut_off()], [7, 0, 0]);
}

#[tokio::test]
async fn a_token_permits_exactly_the_calls_of_its_roles() {
    check_roles(&request()).await;
}

#[tokio::test]
async fn a_certificate_permits_exactly_the_calls_of_its_roles() {
    check_roles(&SecretsRequest { mutual: Some(true), ..request() }).await;
}

#[tokio::test]
async fn a_missing_or_wrong_token_is_unauthenticated() {
    let secrets = cluster(&request());
    let running = Running::start(&secrets.path().join("replay")).await;
    let nameless = tempfile::tempdir().unwrap();
    fs::copy(secrets.path().join("replay/ca.pem"), nameless.path().join("ca.pem")).unwrap();
    let status = info(running.channel(nameless.path())).await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("--secrets"), "{status}");

    let mut health = HealthClient::new(running.channel(nameless.path()));
    let asked = health.check(HealthCheckRequest::default()).await;
    assert_eq!(asked.unwrap_err().code(), Code::Unauthenticated);
    let mut health = HealthClient::new(running.channel(&secrets.path().join("actor")));
    assert_eq!(health.check(HealthCheckRequest::default()).await.unwrap().into_inner().status, 1);
    use tonic_reflection::pb::v1::ServerReflectionRequest as Request;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    let mut reflection = ServerReflectionClient::new(running.channel(nameless.path()));
    let asked = reflection.server_reflection_info(tokio_stream::once(Request::default())).await;
    assert_eq!(asked.unwrap_err().code(), Code::Unauthenticated);
    let mut reflection = ServerReflectionClient::new(running.channel(&secrets.path().join("actor")));
    reflection.server_reflection_info(tokio_stream::once(Request::default())).await.unwrap();

    fs::write(nameless.path().join("token"), "0".repeat(64)).unwrap();
    let status = info(running.channel(nameless.path())).await;
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("unknown"), "{status}");
    assert_eq!((running.refused("no_token"), running.refused("wrong_token")), (3, 1));
    // Others are not affected.
    assert_eq!(info(running.channel(&secrets.path().join("learner"))).await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn malformed_headers_are_not_tokens() {
    let secrets = cluster(&request());
    let running = Running::start(&secrets.path().join("replay")).await;
    let nameless = tempfile::tempdir().unwrap();
    fs::copy(secrets.path().join("replay/ca.pem"), nameless.path().join("ca.pem")).unwrap();
    let mut client = ReplayClient::new(running.channel(nameless.path()));
    let token = fs::read_to_string(secrets.path().join("learner/token")).unwrap();
    let mut code_of = async |header: String| {
        let mut request = tonic::Request::new(v1::InfoRequest {});
        request.metadata_mut().insert("authorization", header.parse().unwrap());
        client.info(request).await.unwrap_err().code()
    };
    for odd in [
        String::new(),
        "x".into(),
        "Bearer ".into(),
        format!("Basic {token}"),
        token.clone(),
        format!("Bearer {token} "),
    ] {
        let code = code_of(odd.clone()).await;
        assert!(
            code == Code::Unauthenticated || odd.ends_with(' ') && code == Code::Unimplemented,
            "{odd:?}: {code:?}"
        );
    }
    for good in ["Bearer", "bearer"] {
        assert_eq!(code_of(format!("{good} {token}")).await, Code::Unimplemented);
    }
}

#[tokio::test]
async fn a_tls_server_closes_plaintext_connections_and_a_tls_client_reports_a_plaintext_server() {
    let secrets = cluster(&request());
    let running = Running::start(&secrets.path().join("replay")).await;
    let good = running.channel(&secrets.path().join("learner"));
    assert_eq!(info(good.clone()).await.code(), Code::Unimplemented);
    let status = info(channel(&running.address)).await;
    never_arrived(&status);
    let plain = Credentials::none().describe(&running.address, &status);
    assert!(plain.contains("--secrets"), "{plain}");
    let mut browser = TcpStream::connect(running.address.authority().unwrap()).await.unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    // The server sends a TLS alert and closes the connection.
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, browser.read_to_end(&mut answer)).await.unwrap();
    assert!(running.cut_off() >= 2);
    assert_eq!(info(good).await.code(), Code::Unimplemented, "existing connections are not affected");

    let edge = Edge::register(&Registry::new()).unwrap();
    let plain = Listener::bind(&"127.0.0.1:0".parse().unwrap(), edge, Gate::open()).await.unwrap();
    let address = plain.address().clone();
    tokio::spawn(plain.serve(Routes::default(), std::future::pending()));
    let credentials = Credentials::load(Some(&secrets.path().join("learner"))).unwrap();
    let status = info(credentials.channel(Role::Replay, &address)).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("--secrets"), "{}", describe(&status));
}

#[tokio::test]
async fn connections_without_a_handshake_delay_no_other_client() {
    let secrets = cluster(&request());
    let running = Running::start(&secrets.path().join("replay")).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(running.address.authority().unwrap()).await.unwrap());
    }
    assert_eq!(info(running.channel(&secrets.path().join("learner"))).await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn neither_side_trusts_another_authority() {
    let (ours, theirs) = (cluster(&request()), cluster(&SecretsRequest { mutual: Some(true), ..request() }));
    let running = Running::start(&ours.path().join("replay")).await;
    let status = info(running.channel(&theirs.path().join("learner"))).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("the same 'quiver certs'"), "{}", describe(&status));

    // A client that trusts the server and has a certificate of another authority.
    let mixed = tempfile::tempdir().unwrap();
    fs::copy(ours.path().join("actor/ca.pem"), mixed.path().join("ca.pem")).unwrap();
    for file in ["client.pem", "client-key.pem"] {
        fs::copy(theirs.path().join("learner").join(file), mixed.path().join(file)).unwrap();
    }
    let status = info(running.channel(mixed.path())).await;
    never_arrived(&status);
    assert!(describe(&status).contains("fatal alert"), "{}", describe(&status));
    assert!(running.cut_off() >= 2);
    assert_eq!(info(running.channel(&ours.path().join("learner"))).await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn neither_side_accepts_an_expired_certificate() {
    // Valid until now.
    let expired = cluster(&SecretsRequest { days: 0, mutual: Some(true), ..request() });
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let running = Running::start(&expired.path().join("replay")).await;
    let status = info(running.channel(&expired.path().join("learner"))).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("expired"), "{}", describe(&status));

    // A server with a new certificate of the same authority, and a client with the old one.
    let old = tempfile::tempdir().unwrap();
    for file in ["ca.pem", "client.pem", "client-key.pem"] {
        fs::copy(expired.path().join("learner").join(file), old.path().join(file)).unwrap();
    }
    make(expired.path(), &SecretsRequest { mutual: Some(true), ..request() }).unwrap();
    let running = Running::start(&expired.path().join("replay")).await;
    let status = info(running.channel(old.path())).await;
    never_arrived(&status);
    assert!(describe(&status).contains("CertificateExpired"), "{}", describe(&status));
    assert_eq!(running.cut_off(), 1);
    assert_eq!(info(running.channel(&expired.path().join("learner"))).await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_client_rejects_a_shard_at_the_learners_address() {
    let secrets = cluster(&request());
    let running = Running::start(&secrets.path().join("replay")).await;
    let credentials = Credentials::load(Some(&secrets.path().join("actor"))).unwrap();
    let mut client = LearnerClient::new(credentials.channel(Role::Learner, &running.address));
    let status = client.join(v1::JoinRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("does not have the role learner"), "{}", describe(&status));
}

#[tokio::test]
async fn a_token_is_not_sent_in_plaintext() {
    let secrets = cluster(&request());
    let credentials = Credentials::load(Some(&secrets.path().join("actor"))).unwrap();
    let token = fs::read_to_string(secrets.path().join("actor/token")).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let received = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        bytes
    });
    drop(info(credentials.channel(Role::Replay, &address)).await);
    let received = received.await.unwrap();
    assert_eq!(received[..2], [0x16, 0x03], "a TLS handshake");
    assert!(!received.windows(token.len()).any(|window| window == token.as_bytes()));
    assert!(!format!("{credentials:?} {:?}", credentials.channel(Role::Replay, &address)).contains(&token));
}
