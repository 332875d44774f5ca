//! Creates the secrets folders of a whole cluster: an authority, and a folder for each kind of process.
//!
//! | folder | for |
//! |---|---|
//! | `authority` | no process: it holds the signing key. Keep it where no process of the cluster can read it |
//! | `replay`, `learner` | servers |
//! | `actor` | actors |
//! | `evaluator` | evaluators |
//! | `admin` | operators who inspect, adjust and snapshot |
//! | `client` | custom programs that write and sample, such as the Python client |
//!
//! Running it again keeps the authority and the tokens. It replaces the certificates if they expire soon or if
//! something is missing. `authority/expires`, which marks the folders as complete, is written last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustix::rand::{GetRandomFlags, getrandom};
use time::OffsetDateTime;

use super::{
    AUTHORITY, CLIENT, CLIENT_KEY, EXPIRES, EXPIRES_SOON, SERVER, SERVER_KEY, Secrets, TOKEN, TOKENS, digest,
    is_token, seconds_since_1970, to_hex,
};
use crate::role::Role;

const AUTHORITY_FOLDER: &str = "authority";
const AUTHORITY_KEY: &str = "ca-key.pem";
const LOCK: &str = "lock";
/// File with the last request: the kind of client credentials, then one host per line.
const LAST_REQUEST: &str = "ordered";
const MUTUAL: &str = "certificates";
/// Common name in the authority's certificate.
const AUTHORITY_NAME: &str = "quiver cluster authority";
/// Lifetime of the authority, longer than that of the certificates that it signs.
const AUTHORITY_DAYS: u32 = 20 * 365;
/// Host names in every server certificate, for third-party clients that verify the host. Our clients verify only the
/// role.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Clocks of machines differ, so certificates are valid from a little before their creation.
const CLOCK_SKEW: time::Duration = time::Duration::DAY;

const SERVERS: [Role; 2] = [Role::Replay, Role::Learner];
/// Folders of callers, with the roles of each.
const CALLERS: [(&str, &[Role]); 5] = [
    ("actor", &[Role::Actor]),
    ("evaluator", &[Role::Evaluator]),
    ("learner", &[Role::Learner]),
    ("admin", &[Role::Admin]),
    ("client", &[Role::Actor, Role::Learner, Role::Admin]),
];

/// Options of [`make`].
#[derive(Clone, Debug)]
pub struct SecretsRequest {
    /// Further names and addresses of servers, for clients that verify the host. Our clients do not.
    pub hosts: Vec<String>,
    /// Lifetime of the certificates.
    pub days: u32,
    /// Whether callers use certificates instead of tokens. `None` keeps the last choice; the first default is tokens.
    pub mutual: Option<bool>,
    /// Replace the certificates even if they are still valid.
    pub renew: bool,
}

/// The result of [`make`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// A new authority with new certificates and tokens.
    New,
    /// New certificates of the existing authority. Processes with old certificates must be restarted.
    Renewed,
    /// Nothing changed.
    Kept {
        /// Days until the certificates expire.
        days: u64,
    },
}

/// Why the secrets could not be created.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error("can't read or write {path}: {error}; check its permissions, or choose another --out", path = path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("--host {0:?} is neither a name nor an address: give a DNS name or an IP address")]
    Host(String),
    /// A token file that was changed by hand.
    #[error(
        "{path} contains no valid token: delete it and run 'quiver certs --renew' to create another",
        path = .0.display()
    )]
    Token(PathBuf),
    /// Server certificates exist, but the authority's key does not.
    #[error(
        "the secrets in {path} exist, but the key of their authority is missing: restore {path}/authority, or delete all \
         of {path} to start over", path = .0.display()
    )]
    MissingAuthority(PathBuf),
    /// An invalid host, or a key that was changed by hand.
    #[error("can't create certificates: {0}; check --host, or delete the keys in the folder")]
    Certificate(#[from] rcgen::Error),
}

/// Creates what is missing or about to expire in `folder`.
pub fn make(folder: &Path, request: &SecretsRequest) -> Result<Made, MakeError> {
    let lock = lock(folder)?;
    let request = merge_with_last_request(folder, request)?;
    let maker = Maker { folder, request: &request };
    let before = maker.expiry()?;
    let left = before.map_or(0, |expires| expires.saturating_sub(seconds_since_1970()));
    if left > EXPIRES_SOON.as_secs() && !request.renew && maker.is_complete()? {
        return Ok(Made::Kept { days: left / (24 * 3600) });
    }
    let existed = maker.read(AUTHORITY_FOLDER, AUTHORITY_KEY)?.is_some();
    // Without this file the folders count as incomplete, so an interrupted run is repeated.
    maker.remove(AUTHORITY_FOLDER, EXPIRES)?;
    maker.make()?;
    drop(lock);
    Ok(if existed { Made::Renewed } else { Made::New })
}

/// Takes the file lock that keeps other processes from creating secrets here. Dropping the file releases it.
fn lock(folder: &Path) -> Result<File, MakeError> {
    let below = folder.join(AUTHORITY_FOLDER);
    let failed = |error| MakeError::File { path: below.join(LOCK), error };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&below).map_err(failed)?;
    let lock = File::create(below.join(LOCK)).map_err(failed)?;
    lock.lock().map_err(failed)?;
    Ok(lock)
}

/// Adds the hosts of the last request, and its kind of client credentials unless this request chooses one.
fn merge_with_last_request(folder: &Path, request: &SecretsRequest) -> Result<SecretsRequest, MakeError> {
    let is_host = |host: &&String| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:*_".contains(&byte))
    };
    if let Some(host) = request.hosts.iter().find(|host| !is_host(host)) {
        return Err(MakeError::Host(host.clone()));
    }
    let path = folder.join(AUTHORITY_FOLDER).join(LAST_REQUEST);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| MakeError::File { path, error })?,
    };
    let mut lines = before.lines();
    let mutual = lines.next() == Some(MUTUAL);
    let mut hosts: Vec<String> = lines.map(str::to_owned).collect();
    hosts.extend(request.hosts.iter().filter(|host| !before.lines().any(|known| known == *host)).cloned());
    Ok(SecretsRequest { hosts, mutual: Some(request.mutual.unwrap_or(mutual)), ..request.clone() })
}

struct Maker<'a> {
    folder: &'a Path,
    request: &'a SecretsRequest,
}

impl Maker<'_> {
    fn make(&self) -> Result<(), MakeError> {
        let authority = self.authority()?;
        let expires = OffsetDateTime::now_utc() + time::Duration::days(self.request.days.into());
        let stamp = expires.unix_timestamp().max(0).to_string();
        let mut tokens = String::new();
        for (caller, roles) in CALLERS {
            if self.is_mutual() {
                let names = roles.iter().map(|role| role.dns_name()).collect();
                let usage = ExtendedKeyUsagePurpose::ClientAuth;
                self.certify(&authority, caller, [CLIENT, CLIENT_KEY], names, usage, expires)?;
                self.remove(caller, TOKEN)?;
            } else {
                let token = self.token(caller)?;
                let digest = to_hex(&digest(token.as_bytes()));
                roles.iter().for_each(|role| tokens.push_str(&format!("{role} {digest}\n")));
                self.remove(caller, CLIENT)?;
                self.remove(caller, CLIENT_KEY)?;
            }
            self.trust(caller, &stamp)?;
        }
        for server in SERVERS {
            let hosts = HOSTS.into_iter().map(str::to_owned).chain(self.request.hosts.iter().cloned());
            let names = hosts.chain([server.name().to_owned(), server.dns_name()]).collect();
            let usage = ExtendedKeyUsagePurpose::ServerAuth;
            self.certify(&authority, server.name(), [SERVER, SERVER_KEY], names, usage, expires)?;
            self.write(server.name(), TOKENS, &tokens)?;
            self.trust(server.name(), &stamp)?;
        }
        self.write(AUTHORITY_FOLDER, LAST_REQUEST, &self.request_file())?;
        self.write(AUTHORITY_FOLDER, EXPIRES, &stamp)
    }

    fn is_mutual(&self) -> bool {
        self.request.mutual.unwrap_or(false)
    }

    /// Content of the file with the last request.
    fn request_file(&self) -> String {
        let credentials = if self.is_mutual() { MUTUAL } else { "tokens" };
        let lines = std::iter::once(credentials).chain(self.request.hosts.iter().map(String::as_str));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The existing authority, or a new one if none exists.
    fn authority(&self) -> Result<Issuer<'static, KeyPair>, MakeError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = OffsetDateTime::now_utc();
        parameters.not_before = now - CLOCK_SKEW;
        parameters.not_after = now + time::Duration::days(AUTHORITY_DAYS.into());
        let known = self.read(AUTHORITY_FOLDER, AUTHORITY)?;
        let key = match self.read(AUTHORITY_FOLDER, AUTHORITY_KEY)?.filter(|_| known.is_some()) {
            Some(text) => KeyPair::from_pem(&text)?,
            None if SERVERS.iter().any(|server| self.folder.join(server.name()).join(SERVER).exists()) => {
                return Err(MakeError::MissingAuthority(self.folder.to_owned()));
            }
            None => {
                let key = KeyPair::generate()?;
                self.write(AUTHORITY_FOLDER, AUTHORITY_KEY, &key.serialize_pem())?;
                self.write(AUTHORITY_FOLDER, AUTHORITY, &parameters.self_signed(&key)?.pem())?;
                key
            }
        };
        Ok(Issuer::new(parameters, key))
    }

    fn certify(
        &self,
        authority: &Issuer<'_, KeyPair>,
        folder: &str,
        [certificate_file, key_file]: [&str; 2],
        names: Vec<String>,
        usage: ExtendedKeyUsagePurpose,
        expires: OffsetDateTime,
    ) -> Result<(), MakeError> {
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.push(DnType::CommonName, format!("quiver {folder}"));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        parameters.use_authority_key_identifier_extension = true;
        parameters.not_before = OffsetDateTime::now_utc() - CLOCK_SKEW;
        parameters.not_after = expires;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, authority)?;
        self.write(folder, key_file, &key.serialize_pem())?;
        self.write(folder, certificate_file, &certificate.pem())
    }

    /// Writes the files that every folder has: the authority's certificate and the expiry.
    fn trust(&self, folder: &str, stamp: &str) -> Result<(), MakeError> {
        let authority = self.read(AUTHORITY_FOLDER, AUTHORITY)?.unwrap_or_default();
        self.write(folder, AUTHORITY, &authority)?;
        self.write(folder, EXPIRES, stamp)
    }

    /// The existing token, or a new one.
    fn token(&self, folder: &str) -> Result<String, MakeError> {
        if let Some(token) = self.read(folder, TOKEN)? {
            let token = token.trim();
            return match is_token(token.as_bytes()) {
                true => Ok(token.to_owned()),
                false => Err(MakeError::Token(self.folder.join(folder).join(TOKEN))),
            };
        }
        let mut random = [0; 32];
        let failed = |error: rustix::io::Errno| self.failed(folder, TOKEN, error.into());
        getrandom(&mut random, GetRandomFlags::empty()).map_err(failed)?;
        let token = to_hex(&random);
        self.write(folder, TOKEN, &token)?;
        Ok(token)
    }

    fn expiry(&self) -> Result<Option<u64>, MakeError> {
        Ok(self.read(AUTHORITY_FOLDER, EXPIRES)?.and_then(|text| text.trim().parse().ok()))
    }

    /// Whether all folders match the request and are usable.
    fn is_complete(&self) -> Result<bool, MakeError> {
        if self.read(AUTHORITY_FOLDER, LAST_REQUEST)? != Some(self.request_file()) {
            return Ok(false);
        }
        let secrets = |folder: &str| Secrets::new(&self.folder.join(folder));
        let servers = SERVERS.iter().all(|&role| {
            let secrets = secrets(role.name());
            let accepts_tokens = secrets.tokens().is_ok_and(|tokens| tokens.0.is_empty() == self.is_mutual());
            accepts_tokens && secrets.server().is_ok() && secrets.certifies(role).unwrap_or(false)
        });
        let callers = CALLERS.iter().all(|(caller, _)| {
            let secrets = secrets(caller);
            let has_token = secrets.token().is_ok_and(|token| token.is_none() == self.is_mutual());
            has_token && secrets.client().is_ok()
        });
        Ok(servers && callers)
    }

    /// The content of a file; `None` if it does not exist.
    fn read(&self, folder: &str, file: &str) -> Result<Option<String>, MakeError> {
        match fs::read_to_string(self.folder.join(folder).join(file)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(folder, file, error)),
        }
    }

    /// Writes a file atomically, readable only by its owner.
    fn write(&self, folder: &str, file: &str, text: &str) -> Result<(), MakeError> {
        let below = self.folder.join(folder);
        let path = below.join(file);
        let part = path.with_added_extension("part");
        let written = fs::DirBuilder::new().recursive(true).mode(0o700).create(&below).and_then(|()| {
            // A leftover from an interrupted run may have another mode.
            let _ = fs::remove_file(&part);
            let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            fs::rename(&part, &path)
        });
        written.map_err(|error| self.failed(folder, file, error))
    }

    fn remove(&self, folder: &str, file: &str) -> Result<(), MakeError> {
        match fs::remove_file(self.folder.join(folder).join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(folder, file, error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, folder: &str, file: &str, error: io::Error) -> MakeError {
        MakeError::File { path: self.folder.join(folder).join(file), error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn request() -> SecretsRequest {
        SecretsRequest { hosts: vec!["trainer.example".into()], days: 365, mutual: None, renew: false }
    }

    #[test]
    fn each_folder_has_exactly_the_files_that_its_process_needs() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(make(root.path(), &request()).unwrap(), Made::New);
        let files = |folder: &str| {
            let mut names: Vec<String> = fs::read_dir(root.path().join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(files("replay"), "ca.pem expires server-key.pem server.pem tokens.sha256");
        assert_eq!(files("learner"), "ca.pem expires server-key.pem server.pem token tokens.sha256");
        for caller in ["actor", "evaluator", "admin", "client"] {
            assert_eq!(files(caller), "ca.pem expires token");
        }
        for folder in ["replay", "learner", "actor"] {
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let folder = root.path().join(folder);
            assert_eq!(mode(&folder), 0o700);
            assert!(fs::read_dir(&folder).unwrap().all(|file| mode(&file.unwrap().path()) == 0o600));
        }
        let known = Secrets::new(&root.path().join("replay")).tokens().unwrap();
        let roles = |folder: &str| {
            let token = Secrets::new(&root.path().join(folder)).token().unwrap().unwrap();
            known.roles(token.as_bytes()).to_string()
        };
        let all = ["actor", "evaluator", "learner", "admin", "client"].map(roles);
        assert_eq!(all, ["actor", "evaluator", "learner", "admin", "actor+learner+admin"]);
    }

    #[test]
    fn a_second_run_keeps_valid_secrets_and_renews_expiring_ones() {
        let root = tempfile::tempdir().unwrap();
        let read = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        make(root.path(), &SecretsRequest { days: 29, ..request() }).unwrap();
        let before = ["authority/ca.pem", "actor/token", "replay/server.pem"].map(read);
        assert_eq!(make(root.path(), &request()).unwrap(), Made::Renewed);
        let after = ["authority/ca.pem", "actor/token", "replay/server.pem"].map(read);
        assert_eq!(
            (&before[0], &before[1]),
            (&after[0], &after[1]),
            "running processes still trust each other"
        );
        assert_ne!(before[2], after[2]);
        assert!(matches!(make(root.path(), &request()).unwrap(), Made::Kept { days: 364 | 365 }));
        assert_eq!(make(root.path(), &SecretsRequest { renew: true, ..request() }).unwrap(), Made::Renewed);
    }

    #[test]
    fn secrets_of_version_0_1_get_an_evaluator_and_keep_their_tokens() {
        let root = tempfile::tempdir().unwrap();
        let at = |file: &str| root.path().join(file);
        make(root.path(), &request()).unwrap();
        fs::remove_dir_all(at("evaluator")).unwrap();
        for server in ["replay/tokens.sha256", "learner/tokens.sha256"] {
            let lines = fs::read_to_string(at(server)).unwrap();
            let lines: Vec<&str> = lines.lines().filter(|line| !line.starts_with("evaluator")).collect();
            fs::write(at(server), lines.join("\n")).unwrap();
        }
        let missing = Secrets::new(&at("evaluator")).client().unwrap_err().to_string();
        assert!(missing.contains("run 'quiver certs' again"), "{missing}");
        let actor = fs::read_to_string(at("actor/token")).unwrap();
        assert_eq!(make(root.path(), &request()).unwrap(), Made::Renewed);
        assert_eq!(fs::read_to_string(at("actor/token")).unwrap(), actor);
        let token = Secrets::new(&at("evaluator")).token().unwrap().unwrap();
        let known = Secrets::new(&at("learner")).tokens().unwrap();
        assert_eq!(known.roles(token.as_bytes()).to_string(), "evaluator");
    }

    #[test]
    fn missing_or_damaged_files_are_replaced_and_the_rest_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let at = |file: &str| root.path().join(file);
        make(root.path(), &request()).unwrap();
        fs::remove_dir_all(at("actor")).unwrap();
        assert_eq!(make(root.path(), &request()).unwrap(), Made::Renewed);
        fs::copy(at("learner/server.pem"), at("replay/server.pem")).unwrap();
        assert_eq!(
            make(root.path(), &request()).unwrap(),
            Made::Renewed,
            "the certificate of another server"
        );
        let make_with = |hosts: &[&str], mutual| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            make(root.path(), &SecretsRequest { hosts, mutual, ..request() })
        };
        assert_eq!(make_with(&[], Some(true)).unwrap(), Made::Renewed);
        assert!(matches!(make_with(&[], None).unwrap(), Made::Kept { .. }), "certificates remain the choice");
        assert_eq!(make_with(&["other.example"], None).unwrap(), Made::Renewed);
        assert!(matches!(make_with(&["trainer.example"], None).unwrap(), Made::Kept { .. }), "hosts add up");
        assert!(make_with(&["two words"], None).unwrap_err().to_string().contains("two words"));
        assert_eq!(make_with(&[], Some(false)).unwrap(), Made::Renewed);

        fs::write(at("client/token"), "").unwrap();
        let error = make(root.path(), &request()).unwrap_err().to_string();
        assert!(error.contains("client/token"), "{error}");
        fs::remove_file(at("client/token")).unwrap();
        assert_eq!(make(root.path(), &request()).unwrap(), Made::Renewed);

        fs::remove_dir_all(at("authority")).unwrap();
        let error = make(root.path(), &request()).unwrap_err().to_string();
        assert!(error.contains("the key of their authority is missing"), "{error}");
    }

    #[test]
    fn certificates_can_replace_tokens() {
        let root = tempfile::tempdir().unwrap();
        make(root.path(), &request()).unwrap();
        make(root.path(), &SecretsRequest { mutual: Some(true), ..request() }).unwrap();
        let actor = Secrets::new(&root.path().join("actor"));
        assert_eq!(actor.token().unwrap(), None);
        actor.client().unwrap();
        assert_eq!(fs::read_to_string(root.path().join("replay/tokens.sha256")).unwrap(), "");
    }
}
