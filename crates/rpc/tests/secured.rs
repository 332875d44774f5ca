//! Who gets in at a server with secrets, and who does not. It serves nothing: whoever is let in hears that the call does
//! not exist (UNIMPLEMENTED), everyone else hears why they are not.

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
use rpc::secrets::make::{Order, make};
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

fn order() -> Order {
    Order { hosts: Vec::new(), days: 365, mutual: None, renew: false }
}

fn cluster(order: &Order) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make(folder.path(), order).unwrap();
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
        self.metric(&format!("rpc_requests_refused_total{{reason=\"{reason}\"}}"))
    }

    fn cut_off(&self) -> u64 {
        self.metric("rpc_connections_refused_total{reason=\"tls\"}")
    }
}

/// What someone on this channel hears to a question that is for learners and admins.
async fn info(channel: Channel) -> Status {
    let mut client = ReplayClient::new(channel);
    let answer = timeout(PATIENCE, client.info(v1::InfoRequest {})).await.unwrap();
    answer.expect_err("nothing is served here")
}

/// Whether no request came through: the connection broke, or never was one.
#[track_caller]
fn never_arrived(status: &Status) {
    assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{status:?}");
}

async fn check_roles(order: &Order) {
    let secrets = cluster(order);
    let running = Running::start(&secrets.path().join("replay")).await;
    let expected = [
        ("actor", false, true, false),
        ("learner", true, false, false),
        ("admin", true, false, true),
        ("client", true, true, true),
    ];
    for (who, may_ask, may_join, may_adjust) in expected {
        let channel = running.channel(&secrets.path().join(who));
        let mut learner = LearnerClient::new(channel.clone());
        let heard = [
            info(channel).await.code(),
            learner.join(v1::JoinRequest::default()).await.unwrap_err().code(),
            learner.adjust(v1::AdjustRequest::default()).await.unwrap_err().code(),
        ];
        let code = |may| if may { Code::Unimplemented } else { Code::PermissionDenied };
        assert_eq!(heard, [may_ask, may_join, may_adjust].map(code), "{who}");
    }
    assert_eq!([running.refused("wrong_role"), running.refused("no_token"), running.cut_off()], [5, 0, 0]);
}

#[tokio::test]
async fn each_role_may_do_what_it_is_for_by_token() {
    check_roles(&order()).await;
}

#[tokio::test]
async fn each_role_may_do_what_it_is_for_by_certificate() {
    check_roles(&Order { mutual: Some(true), ..order() }).await;
}

#[tokio::test]
async fn whoever_shows_nothing_or_a_wrong_token_hears_so() {
    let secrets = cluster(&order());
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
async fn odd_headers_are_no_tokens() {
    let secrets = cluster(&order());
    let running = Running::start(&secrets.path().join("replay")).await;
    let nameless = tempfile::tempdir().unwrap();
    fs::copy(secrets.path().join("replay/ca.pem"), nameless.path().join("ca.pem")).unwrap();
    let mut client = ReplayClient::new(running.channel(nameless.path()));
    let token = fs::read_to_string(secrets.path().join("learner/token")).unwrap();
    let mut heard = async |header: String| {
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
        let code = heard(odd.clone()).await;
        assert!(
            code == Code::Unauthenticated || odd.ends_with(' ') && code == Code::Unimplemented,
            "{odd:?}: {code:?}"
        );
    }
    for good in ["Bearer", "bearer"] {
        assert_eq!(heard(format!("{good} {token}")).await, Code::Unimplemented);
    }
}

#[tokio::test]
async fn plain_text_against_tls_is_cut_off_and_tls_against_plain_text_is_told() {
    let secrets = cluster(&order());
    let running = Running::start(&secrets.path().join("replay")).await;
    let good = running.channel(&secrets.path().join("learner"));
    assert_eq!(info(good.clone()).await.code(), Code::Unimplemented);
    let status = info(channel(&running.address)).await;
    never_arrived(&status);
    let plain = Credentials::none().describe(&running.address, &status);
    assert!(plain.contains("--secrets"), "{plain}");
    let mut browser = TcpStream::connect(running.address.authority().unwrap()).await.unwrap();
    browser.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    // An alert of TLS, and the end.
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, browser.read_to_end(&mut answer)).await.unwrap();
    assert!(running.cut_off() >= 2);
    assert_eq!(info(good).await.code(), Code::Unimplemented, "who was there before is not affected");

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
async fn a_connection_that_never_becomes_secure_holds_nobody_up() {
    let secrets = cluster(&order());
    let running = Running::start(&secrets.path().join("replay")).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(running.address.authority().unwrap()).await.unwrap());
    }
    assert_eq!(info(running.channel(&secrets.path().join("learner"))).await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn another_authority_is_believed_by_neither_side() {
    let (ours, theirs) = (cluster(&order()), cluster(&Order { mutual: Some(true), ..order() }));
    let running = Running::start(&ours.path().join("replay")).await;
    let status = info(running.channel(&theirs.path().join("learner"))).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("one 'quiver certs'"), "{}", describe(&status));

    // Someone who believes the server, and shows what another authority has signed.
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
async fn what_has_expired_is_believed_by_neither_side() {
    // Valid until now.
    let over = cluster(&Order { days: 0, mutual: Some(true), ..order() });
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let running = Running::start(&over.path().join("replay")).await;
    let status = info(running.channel(&over.path().join("learner"))).await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("expired"), "{}", describe(&status));

    // A server with a new certificate of the same authority, and a caller with the old one.
    let old = tempfile::tempdir().unwrap();
    for file in ["ca.pem", "client.pem", "client-key.pem"] {
        fs::copy(over.path().join("learner").join(file), old.path().join(file)).unwrap();
    }
    make(over.path(), &Order { mutual: Some(true), ..order() }).unwrap();
    let running = Running::start(&over.path().join("replay")).await;
    let status = info(running.channel(old.path())).await;
    never_arrived(&status);
    assert!(describe(&status).contains("CertificateExpired"), "{}", describe(&status));
    assert_eq!(running.cut_off(), 1);
    assert_eq!(info(running.channel(&over.path().join("learner"))).await.code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_shard_is_not_taken_for_a_learner() {
    let secrets = cluster(&order());
    let running = Running::start(&secrets.path().join("replay")).await;
    let credentials = Credentials::load(Some(&secrets.path().join("actor"))).unwrap();
    let mut client = LearnerClient::new(credentials.channel(Role::Learner, &running.address));
    let status = client.join(v1::JoinRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(describe(&status).contains("this is no learner"), "{}", describe(&status));
}

#[tokio::test]
async fn a_token_is_not_sent_where_it_could_be_read() {
    let secrets = cluster(&order());
    let credentials = Credentials::load(Some(&secrets.path().join("actor"))).unwrap();
    let token = fs::read_to_string(secrets.path().join("actor/token")).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let overheard = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 4096];
        let count = stream.read(&mut bytes).await.unwrap();
        bytes.truncate(count);
        bytes
    });
    drop(info(credentials.channel(Role::Replay, &address)).await);
    let overheard = overheard.await.unwrap();
    assert_eq!(overheard[..2], [0x16, 0x03], "a handshake of TLS");
    assert!(!overheard.windows(token.len()).any(|window| window == token.as_bytes()));
    assert!(!format!("{credentials:?} {:?}", credentials.channel(Role::Replay, &address)).contains(&token));
}
