//! Who is who in a cluster, and which calls each may make.
//!
//! A role is what a token stands for, and what a certificate names: as one of its DNS names, so that no other parser of
//! certificates is needed than the one that TLS has. Servers have roles too: whoever calls a shard wants a shard to
//! answer, whatever its address.

use std::fmt;
use std::str::FromStr;

/// What a process is to a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Plays: joins, follows weights, reports, inserts.
    Actor,
    /// Trains: grants, samples, sends priorities. Actors call it.
    Learner,
    /// Keeps the replay. It calls nobody.
    Replay,
    /// A person: live settings, inspection, snapshots.
    Admin,
}

/// What stands behind a role's name in a certificate. Nobody can own it: it is under no top-level domain.
const DOMAIN: &str = "role.quiver";

impl Role {
    /// All of them.
    pub const ALL: [Role; 4] = [Role::Actor, Role::Learner, Role::Replay, Role::Admin];

    /// As it is written in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Role::Actor => "actor",
            Role::Learner => "learner",
            Role::Replay => "replay",
            Role::Admin => "admin",
        }
    }

    /// As it is written in a certificate.
    pub fn dns_name(self) -> String {
        format!("{}.{DOMAIN}", self.name())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let known = Role::ALL.into_iter().find(|role| role.name() == text);
        known.ok_or_else(|| UnknownRole(text.to_owned()))
    }
}

/// Not a role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}, but actor, learner, replay and admin")]
pub struct UnknownRole(String);

/// The roles of one caller: usually one, and none for a stranger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// Adds a role.
    #[must_use]
    pub fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    /// Whether this is one of them.
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether one of them may call this path, `/package.Service/Method`.
    pub fn may_call(self, path: &str) -> bool {
        match caller_of(path) {
            Some(roles) => roles.iter().any(|&role| self.has(role)),
            None => !self.is_empty(),
        }
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        roles.into_iter().fold(Self::default(), Roles::with)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Role::ALL.into_iter().filter(|&role| self.has(role)).map(Role::name).collect();
        f.write_str(&names.join("+"))
    }
}

/// Whom a call is for, in words.
pub(crate) fn whom(path: &str) -> String {
    let names: Vec<&str> = caller_of(path).unwrap_or(&Role::ALL).iter().map(|role| role.name()).collect();
    names.join(" and ")
}

/// Whom a call is for. `None`: everyone with any role, as reflection is; what does not exist says so itself.
fn caller_of(path: &str) -> Option<&'static [Role]> {
    let method = path.strip_prefix("/quiver.v1.")?;
    Some(match method {
        "Learner/Join" | "Learner/WatchWeights" | "Learner/Report" | "Replay/Insert" => &[Role::Actor],
        "Replay/Sample" | "Replay/UpdatePriorities" | "Replay/Grant" => &[Role::Learner],
        // The learner asks shards who they are.
        "Replay/Info" => &[Role::Learner, Role::Admin],
        // What is added and forgotten here is for admins.
        _ => &[Role::Admin],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_of_the_protocol_is_for_whom_the_design_says() {
        let check = |method: &str, expected: &[Role]| {
            for role in Role::ALL {
                let may = Roles::default().with(role).may_call(&format!("/quiver.v1.{method}"));
                assert_eq!(may, expected.contains(&role), "{role} {method}");
            }
        };
        for method in ["Learner/Join", "Learner/WatchWeights", "Learner/Report", "Replay/Insert"] {
            check(method, &[Role::Actor]);
        }
        for method in ["Replay/Sample", "Replay/UpdatePriorities", "Replay/Grant"] {
            check(method, &[Role::Learner]);
        }
        check("Replay/Info", &[Role::Learner, Role::Admin]);
        for method in
            ["Learner/Adjust", "Replay/Configure", "Replay/Inspect", "Replay/Look", "Replay/Snapshot"]
        {
            check(method, &[Role::Admin]);
        }
        check("Replay/AddedLater", &[Role::Admin]);
    }

    #[test]
    fn a_stranger_may_call_nothing_and_several_roles_add_up() {
        let reflection = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
        assert!(
            !Roles::default().may_call(reflection) && !Roles::default().may_call("/quiver.v1.Replay/Info")
        );
        let both = Roles::from_iter([Role::Actor, Role::Learner]);
        assert!(both.may_call("/quiver.v1.Replay/Insert") && both.may_call("/quiver.v1.Replay/Sample"));
        assert!(!both.may_call("/quiver.v1.Replay/Snapshot") && both.may_call(reflection));
        assert_eq!(both.to_string(), "actor+learner");
    }

    #[test]
    fn a_role_is_read_as_it_is_written() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().unwrap_err().to_string().contains("admin"));
    }
}
