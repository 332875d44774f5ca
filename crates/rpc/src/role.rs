//! The roles of a cluster, and which calls each role may make.
//!
//! A token maps to roles, and a certificate names them: as DNS names, so that the certificate parser of the TLS library
//! is sufficient. Servers have roles too, so that a caller can verify that a shard answers, whatever its address.

use std::fmt;

/// Role of a process in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Actors: join, follow weights, report training games, insert.
    Actor,
    /// The learner: grants, samples, updates priorities. Actors call it.
    Learner,
    /// A shard. It calls no other process.
    Replay,
    /// An operator: live settings, inspection, snapshots.
    Admin,
    /// Evaluators: join as such, follow weights, report scores.
    Evaluator,
}

value::names!(
    Role,
    "role",
    Actor = "actor",
    Learner = "learner",
    Replay = "replay",
    Admin = "admin",
    Evaluator = "evaluator"
);

/// Domain of the role names in certificates. It is under no public top-level domain, so it cannot be registered.
const DOMAIN: &str = "role.quiver";

impl Role {
    /// The role's DNS name in a certificate.
    pub fn dns_name(self) -> String {
        format!("{}.{DOMAIN}", self.name())
    }
}

/// The roles of one caller: usually one; none for an unauthenticated caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roles(u8);

impl Roles {
    /// The roles of a caller of a server without authentication.
    pub fn all() -> Self {
        Role::ALL.into_iter().collect()
    }

    #[must_use]
    pub fn with(self, role: Role) -> Self {
        Self(self.0 | 1 << role as u8)
    }

    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u8 != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether one of the roles may call this path, `/package.Service/Method`.
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

/// The roles that may call a path, for error messages.
pub(crate) fn allowed_roles(path: &str) -> String {
    let names: Vec<&str> = caller_of(path).unwrap_or(&Role::ALL).iter().map(|role| role.name()).collect();
    names.join(" and ")
}

/// The roles that may call a path. `None`: any role, for reflection and health; unknown services answer UNIMPLEMENTED.
fn caller_of(path: &str) -> Option<&'static [Role]> {
    let method = path.strip_prefix("/quiver.v1.")?;
    Some(match method {
        // The learner checks that each role joins and reports only as itself.
        "Learner/Join" | "Learner/WatchWeights" | "Learner/Report" => &[Role::Actor, Role::Evaluator],
        "Replay/Insert" => &[Role::Actor],
        "Replay/Sample" | "Replay/UpdatePriorities" | "Replay/Grant" | "Replay/IssueTicket" => {
            &[Role::Learner]
        }
        // The learner fetches shard ids with it.
        "Replay/Info" => &[Role::Learner, Role::Admin],
        // Unlisted methods default to admin-only.
        _ => &[Role::Admin],
    })
}

/// Who needs a call. Each group has request permits of its own, so that none can use up those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallGroup {
    /// Calls of a learner to its shards.
    Learner,
    /// Calls of operators.
    Admin,
    /// Calls of actors, and of any role: health and reflection.
    Actors,
}

impl CallGroup {
    /// The group of a path. Unlike a role it is known of callers without secrets too.
    pub fn of(path: &str) -> Self {
        match caller_of(path) {
            Some(roles) if roles.contains(&Role::Learner) => CallGroup::Learner,
            Some(roles) if !roles.contains(&Role::Actor) => CallGroup::Admin,
            _ => CallGroup::Actors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_permitted_to_exactly_its_roles() {
        let check = |method: &str, expected: &[Role]| {
            for role in Role::ALL {
                let may = Roles::default().with(role).may_call(&format!("/quiver.v1.{method}"));
                assert_eq!(may, expected.contains(&role), "{role} {method}");
            }
        };
        for method in ["Learner/Join", "Learner/WatchWeights", "Learner/Report"] {
            check(method, &[Role::Actor, Role::Evaluator]);
        }
        check("Replay/Insert", &[Role::Actor]);
        for method in ["Replay/Sample", "Replay/UpdatePriorities", "Replay/Grant", "Replay/IssueTicket"] {
            check(method, &[Role::Learner]);
        }
        check("Replay/Info", &[Role::Learner, Role::Admin]);
        for method in
            ["Learner/Adjust", "Replay/Configure", "Replay/Inspect", "Replay/GetItem", "Replay/Snapshot"]
        {
            check(method, &[Role::Admin]);
        }
        check("Replay/AddedLater", &[Role::Admin]);
    }

    #[test]
    fn a_caller_without_roles_may_call_nothing_and_roles_add_up() {
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
    fn an_actor_has_no_call_in_the_group_of_learner_or_admin() {
        let actor = Roles::default().with(Role::Actor);
        for method in ["Learner/Join", "Replay/Insert", "Replay/Grant", "Replay/Info", "Replay/Snapshot"] {
            let path = format!("/quiver.v1.{method}");
            assert_eq!(actor.may_call(&path), CallGroup::of(&path) == CallGroup::Actors, "{method}");
        }
        assert_eq!(CallGroup::of("/quiver.v1.Replay/Info"), CallGroup::Learner);
        assert_eq!(CallGroup::of("/quiver.v1.Learner/Adjust"), CallGroup::Admin);
        assert_eq!(CallGroup::of("/grpc.health.v1.Health/Check"), CallGroup::Actors);
    }

    #[test]
    fn a_role_parses_from_its_own_name() {
        for role in Role::ALL {
            assert_eq!(role.name().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().unwrap_err().to_string().contains("admin"));
    }
}
