//! Makes the folders of secrets of a whole cluster: an authority, and a folder for each kind of process.
//!
//! | folder | for |
//! |---|---|
//! | `authority` | nobody: it signs. Keep it where no process of the cluster can read it |
//! | `replay`, `learner` | servers |
//! | `actor` | actors and evaluators |
//! | `admin` | people who inspect, adjust and save |
//! | `client` | a program of one's own that writes and samples, like the Python client |
//!
//! Doing it again keeps authority and tokens, and makes certificates anew when they are about to expire or something is
//! missing. What tells that everything is there is written last.

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

/// The folder of the authority, and its key.
const AUTHORITY_FOLDER: &str = "authority";
const AUTHORITY_KEY: &str = "ca-key.pem";
const LOCK: &str = "lock";
/// What was ordered: what callers show, then a host in each line.
const ORDERED: &str = "ordered";
const MUTUAL: &str = "certificates";
/// As the authority calls itself.
const AUTHORITY_NAME: &str = "quiver cluster authority";
/// How long the authority lasts. What it signs should end sooner.
const AUTHORITY_DAYS: u32 = 20 * 365;
/// Names by which servers are called from outside, beside their own and those that are given. Ours go by the role alone.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// Clocks of machines differ, so what is made now is valid a little before.
const CLOCKS_DIFFER: time::Duration = time::Duration::DAY;

/// Folders of those who listen.
const SERVERS: [Role; 2] = [Role::Replay, Role::Learner];
/// Folders of those who call, with what each may do.
const CALLERS: [(&str, &[Role]); 4] = [
    ("actor", &[Role::Actor]),
    ("learner", &[Role::Learner]),
    ("admin", &[Role::Admin]),
    ("client", &[Role::Actor, Role::Learner, Role::Admin]),
];

/// What to make.
#[derive(Clone, Debug)]
pub struct Order {
    /// Further names and addresses of servers, for clients that look at them. Ours don't.
    pub hosts: Vec<String>,
    /// How long certificates last.
    pub days: u32,
    /// Whether callers show certificates instead of tokens; as before if it is not said, and tokens at first.
    pub mutual: Option<bool>,
    /// Make certificates anew although they last.
    pub renew: bool,
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// Everything.
    New,
    /// New certificates of the authority that was there. Whoever has old ones must be started anew.
    Renewed,
    /// Nothing: what was there lasts for so many days.
    Kept {
        /// Until the certificates end.
        days: u64,
    },
}

/// Why there are no secrets.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    /// A file.
    #[error("can't read or write {path}: {error}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Not a host.
    #[error("--host {0:?} is neither a name nor an address")]
    Host(String),
    /// A token that was changed by hand.
    #[error("{path} holds no token: delete it, and 'quiver certs --renew' makes another", path = .0.display())]
    Token(PathBuf),
    /// Who signed is not known any more.
    #[error(
        "there are secrets in {path}, and the key of their authority is gone: bring {path}/authority back, or delete all of {path} \
         to begin anew", path = .0.display()
    )]
    Orphans(PathBuf),
    /// A host, or a key that was changed.
    #[error("can't make certificates: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// Makes what is missing or about to expire below `folder`.
pub fn make(folder: &Path, order: &Order) -> Result<Made, MakeError> {
    let turn = take_turn(folder)?;
    let order = with_what_was_ordered_before(folder, order)?;
    let maker = Maker { folder, order: &order };
    let before = maker.expiry()?;
    let left = before.map_or(0, |expires| expires.saturating_sub(seconds_since_1970()));
    if left > EXPIRES_SOON.as_secs() && !order.renew && maker.is_complete()? {
        return Ok(Made::Kept { days: left / (24 * 3600) });
    }
    let existed = maker.read(AUTHORITY_FOLDER, AUTHORITY_KEY)?.is_some();
    maker.remove(AUTHORITY_FOLDER, EXPIRES)?;
    maker.make()?;
    drop(turn);
    Ok(if existed { Made::Renewed } else { Made::New })
}

/// Waits until nobody else makes secrets here, and keeps others waiting as long as this lives.
fn take_turn(folder: &Path) -> Result<File, MakeError> {
    let below = folder.join(AUTHORITY_FOLDER);
    let failed = |error| MakeError::File { path: below.join(LOCK), error };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&below).map_err(failed)?;
    let lock = File::create(below.join(LOCK)).map_err(failed)?;
    lock.lock().map_err(failed)?;
    Ok(lock)
}

/// Hosts add up, and what callers show stays, until something else is said.
fn with_what_was_ordered_before(folder: &Path, order: &Order) -> Result<Order, MakeError> {
    let sound = |host: &&String| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:*_".contains(&byte))
    };
    if let Some(host) = order.hosts.iter().find(|host| !sound(host)) {
        return Err(MakeError::Host(host.clone()));
    }
    let path = folder.join(AUTHORITY_FOLDER).join(ORDERED);
    let before = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| MakeError::File { path, error })?,
    };
    let mut lines = before.lines();
    let mutual = lines.next() == Some(MUTUAL);
    let mut hosts: Vec<String> = lines.map(str::to_owned).collect();
    hosts.extend(order.hosts.iter().filter(|host| !before.lines().any(|known| known == *host)).cloned());
    Ok(Order { hosts, mutual: Some(order.mutual.unwrap_or(mutual)), ..order.clone() })
}

struct Maker<'a> {
    folder: &'a Path,
    order: &'a Order,
}

impl Maker<'_> {
    fn make(&self) -> Result<(), MakeError> {
        let authority = self.authority()?;
        let expires = OffsetDateTime::now_utc() + time::Duration::days(self.order.days.into());
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
            let hosts = HOSTS.into_iter().map(str::to_owned).chain(self.order.hosts.iter().cloned());
            let names = hosts.chain([server.name().to_owned(), server.dns_name()]).collect();
            let usage = ExtendedKeyUsagePurpose::ServerAuth;
            self.certify(&authority, server.name(), [SERVER, SERVER_KEY], names, usage, expires)?;
            self.write(server.name(), TOKENS, &tokens)?;
            self.trust(server.name(), &stamp)?;
        }
        self.write(AUTHORITY_FOLDER, ORDERED, &self.ordered())?;
        self.write(AUTHORITY_FOLDER, EXPIRES, &stamp)
    }

    fn is_mutual(&self) -> bool {
        self.order.mutual.unwrap_or(false)
    }

    fn ordered(&self) -> String {
        let shown = if self.is_mutual() { MUTUAL } else { "tokens" };
        let lines = std::iter::once(shown).chain(self.order.hosts.iter().map(String::as_str));
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Who signs: who signed before, if the key is there.
    fn authority(&self) -> Result<Issuer<'static, KeyPair>, MakeError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = OffsetDateTime::now_utc();
        parameters.not_before = now - CLOCKS_DIFFER;
        parameters.not_after = now + time::Duration::days(AUTHORITY_DAYS.into());
        let known = self.read(AUTHORITY_FOLDER, AUTHORITY)?;
        let key = match self.read(AUTHORITY_FOLDER, AUTHORITY_KEY)?.filter(|_| known.is_some()) {
            Some(text) => KeyPair::from_pem(&text)?,
            None if SERVERS.iter().any(|server| self.folder.join(server.name()).join(SERVER).exists()) => {
                return Err(MakeError::Orphans(self.folder.to_owned()));
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
        whose: &str,
        [certificate_file, key_file]: [&str; 2],
        names: Vec<String>,
        usage: ExtendedKeyUsagePurpose,
        expires: OffsetDateTime,
    ) -> Result<(), MakeError> {
        let mut parameters = CertificateParams::new(names)?;
        parameters.distinguished_name.push(DnType::CommonName, format!("quiver {whose}"));
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![usage];
        parameters.use_authority_key_identifier_extension = true;
        parameters.not_before = OffsetDateTime::now_utc() - CLOCKS_DIFFER;
        parameters.not_after = expires;
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, authority)?;
        self.write(whose, key_file, &key.serialize_pem())?;
        self.write(whose, certificate_file, &certificate.pem())
    }

    /// What every folder has.
    fn trust(&self, whose: &str, stamp: &str) -> Result<(), MakeError> {
        let authority = self.read(AUTHORITY_FOLDER, AUTHORITY)?.unwrap_or_default();
        self.write(whose, AUTHORITY, &authority)?;
        self.write(whose, EXPIRES, stamp)
    }

    /// The token that is there, or a new one.
    fn token(&self, whose: &str) -> Result<String, MakeError> {
        if let Some(token) = self.read(whose, TOKEN)? {
            let token = token.trim();
            return match is_token(token.as_bytes()) {
                true => Ok(token.to_owned()),
                false => Err(MakeError::Token(self.folder.join(whose).join(TOKEN))),
            };
        }
        let mut random = [0; 32];
        let failed = |error: rustix::io::Errno| self.failed(whose, TOKEN, error.into());
        getrandom(&mut random, GetRandomFlags::empty()).map_err(failed)?;
        let token = to_hex(&random);
        self.write(whose, TOKEN, &token)?;
        Ok(token)
    }

    fn expiry(&self) -> Result<Option<u64>, MakeError> {
        Ok(self.read(AUTHORITY_FOLDER, EXPIRES)?.and_then(|text| text.trim().parse().ok()))
    }

    /// Whether everyone's folder has what is ordered, and can be used.
    fn is_complete(&self) -> Result<bool, MakeError> {
        if self.read(AUTHORITY_FOLDER, ORDERED)? != Some(self.ordered()) {
            return Ok(false);
        }
        let secrets = |whose: &str| Secrets::new(&self.folder.join(whose));
        let servers = SERVERS.iter().all(|&role| {
            let secrets = secrets(role.name());
            let taken = secrets.tokens().is_ok_and(|tokens| tokens.0.is_empty() == self.is_mutual());
            taken && secrets.server().is_ok() && secrets.certifies(role).unwrap_or(false)
        });
        let callers = CALLERS.iter().all(|(caller, _)| {
            let secrets = secrets(caller);
            let shown = secrets.token().is_ok_and(|token| token.is_none() == self.is_mutual());
            shown && secrets.client().is_ok()
        });
        Ok(servers && callers)
    }

    /// What a file holds, if there is one.
    fn read(&self, folder: &str, file: &str) -> Result<Option<String>, MakeError> {
        match fs::read_to_string(self.folder.join(folder).join(file)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(folder, file, error)),
        }
    }

    /// Writes a file that only its owner can read; it is there whole or not at all.
    fn write(&self, folder: &str, file: &str, text: &str) -> Result<(), MakeError> {
        let below = self.folder.join(folder);
        let path = below.join(file);
        let part = path.with_added_extension("part");
        let written = fs::DirBuilder::new().recursive(true).mode(0o700).create(&below).and_then(|()| {
            // One that a former attempt left may have another mode.
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

    fn order() -> Order {
        Order { hosts: vec!["trainer.example".into()], days: 365, mutual: None, renew: false }
    }

    #[test]
    fn everyone_gets_what_they_need_and_no_more() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(make(place.path(), &order()).unwrap(), Made::New);
        let files = |folder: &str| {
            let mut names: Vec<String> = fs::read_dir(place.path().join(folder))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names.join(" ")
        };
        assert_eq!(files("replay"), "ca.pem expires server-key.pem server.pem tokens.sha256");
        assert_eq!(files("learner"), "ca.pem expires server-key.pem server.pem token tokens.sha256");
        for caller in ["actor", "admin", "client"] {
            assert_eq!(files(caller), "ca.pem expires token");
        }
        for folder in ["replay", "learner", "actor"] {
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            let folder = place.path().join(folder);
            assert_eq!(mode(&folder), 0o700);
            assert!(fs::read_dir(&folder).unwrap().all(|file| mode(&file.unwrap().path()) == 0o600));
        }
        let known = Secrets::new(&place.path().join("replay")).tokens().unwrap();
        let roles = |folder: &str| {
            let token = Secrets::new(&place.path().join(folder)).token().unwrap().unwrap();
            known.roles(token.as_bytes()).to_string()
        };
        let all = ["actor", "learner", "admin", "client"].map(roles);
        assert_eq!(all, ["actor", "learner", "admin", "actor+learner+admin"]);
    }

    #[test]
    fn again_keeps_what_lasts_and_renews_what_does_not() {
        let place = tempfile::tempdir().unwrap();
        let read = |file: &str| fs::read_to_string(place.path().join(file)).unwrap();
        make(place.path(), &Order { days: 29, ..order() }).unwrap();
        let before = ["authority/ca.pem", "actor/token", "replay/server.pem"].map(read);
        assert_eq!(make(place.path(), &order()).unwrap(), Made::Renewed);
        let after = ["authority/ca.pem", "actor/token", "replay/server.pem"].map(read);
        assert_eq!((&before[0], &before[1]), (&after[0], &after[1]), "others go on believing each other");
        assert_ne!(before[2], after[2]);
        assert!(matches!(make(place.path(), &order()).unwrap(), Made::Kept { days: 364 | 365 }));
        assert_eq!(make(place.path(), &Order { renew: true, ..order() }).unwrap(), Made::Renewed);
    }

    #[test]
    fn what_is_missing_or_damaged_is_made_again_and_what_can_not_be_is_said() {
        let place = tempfile::tempdir().unwrap();
        let at = |file: &str| place.path().join(file);
        make(place.path(), &order()).unwrap();
        fs::remove_dir_all(at("actor")).unwrap();
        assert_eq!(make(place.path(), &order()).unwrap(), Made::Renewed);
        fs::copy(at("learner/server.pem"), at("replay/server.pem")).unwrap();
        assert_eq!(make(place.path(), &order()).unwrap(), Made::Renewed, "another's certificate");
        let ordered = |hosts: &[&str], mutual| {
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            make(place.path(), &Order { hosts, mutual, ..order() })
        };
        assert_eq!(ordered(&[], Some(true)).unwrap(), Made::Renewed);
        assert!(matches!(ordered(&[], None).unwrap(), Made::Kept { .. }), "it stays with certificates");
        assert_eq!(ordered(&["other.example"], None).unwrap(), Made::Renewed);
        assert!(matches!(ordered(&["trainer.example"], None).unwrap(), Made::Kept { .. }), "hosts add up");
        assert!(ordered(&["two words"], None).unwrap_err().to_string().contains("two words"));
        assert_eq!(ordered(&[], Some(false)).unwrap(), Made::Renewed);

        fs::write(at("client/token"), "").unwrap();
        let error = make(place.path(), &order()).unwrap_err().to_string();
        assert!(error.contains("client/token"), "{error}");
        fs::remove_file(at("client/token")).unwrap();
        assert_eq!(make(place.path(), &order()).unwrap(), Made::Renewed);

        fs::remove_dir_all(at("authority")).unwrap();
        let error = make(place.path(), &order()).unwrap_err().to_string();
        assert!(error.contains("the key of their authority is gone"), "{error}");
    }

    #[test]
    fn certificates_can_take_the_place_of_tokens() {
        let place = tempfile::tempdir().unwrap();
        make(place.path(), &order()).unwrap();
        make(place.path(), &Order { mutual: Some(true), ..order() }).unwrap();
        let actor = Secrets::new(&place.path().join("actor"));
        assert_eq!(actor.token().unwrap(), None);
        actor.client().unwrap();
        assert_eq!(fs::read_to_string(place.path().join("replay/tokens.sha256")).unwrap(), "");
    }
}
