//! Tickets: proofs that an identity was assigned, and not chosen by its holder.
//!
//! A ticket is a message authentication code (HMAC-SHA-256) over an identity, under a key that only the client that
//! configures a run's shards and the shards know. The learner issues one with every Join; a shard checks it before it
//! accepts the first chunk of a stream. The holder of a ticket is the member, so tickets travel over TLS and are not logged.

use replay::TicketKey;
use ring::hmac::{HMAC_SHA256, Key, sign, verify};

/// Domain and version of the code: a key that is used for anything else by mistake proves nothing here.
const DOMAIN: &[u8] = b"quiver ticket 1\0";

/// The role that a ticket proves. An evaluator's ticket must not prove an actor of the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketRole {
    Actor = 1,
    Evaluator = 2,
}

/// What a ticket proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The run's unique name.
    pub run: &'a str,
    pub role: TicketRole,
    pub index: u32,
    pub incarnation: u64,
}

impl Identity<'_> {
    /// The identity's ticket.
    pub fn ticket(&self, key: &TicketKey) -> Vec<u8> {
        sign(&Key::new(HMAC_SHA256, key.as_bytes()), &self.message()).as_ref().to_vec()
    }

    /// Whether a ticket proves this identity. Constant time with respect to the ticket's content.
    pub fn is_proven(&self, key: &TicketKey, ticket: &[u8]) -> bool {
        verify(&Key::new(HMAC_SHA256, key.as_bytes()), &self.message(), ticket).is_ok()
    }

    /// The bytes under the code. The only field of variable length follows its length, so no two identities share them.
    fn message(&self) -> Vec<u8> {
        let Self { run, role, index, incarnation } = *self;
        let length = (run.len() as u32).to_be_bytes();
        let role = [role as u8];
        [DOMAIN, &length, run.as_bytes(), &role, &index.to_be_bytes(), &incarnation.to_be_bytes()].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity<'static> =
        Identity { run: "run", role: TicketRole::Actor, index: 3, incarnation: 7 };

    #[test]
    fn a_ticket_proves_exactly_one_identity_under_one_key() {
        let key = TicketKey::from_bytes(&[7; 32]).unwrap();
        let ticket = IDENTITY.ticket(&key);
        assert!(IDENTITY.is_proven(&key, &ticket));
        let others = [
            Identity { run: "run2", ..IDENTITY },
            Identity { run: "", ..IDENTITY },
            Identity { role: TicketRole::Evaluator, ..IDENTITY },
            Identity { index: 4, ..IDENTITY },
            Identity { incarnation: u64::MAX, ..IDENTITY },
        ];
        for other in others {
            assert!(!other.is_proven(&key, &ticket), "{other:?}");
        }
        assert!(!IDENTITY.is_proven(&TicketKey::from_bytes(&[8; 32]).unwrap(), &ticket));
        for wrong in [&[][..], &ticket[1..], &[0; 32], &[&ticket[..], &[0]].concat()] {
            assert!(!IDENTITY.is_proven(&key, wrong));
        }
    }

    #[test]
    fn a_ticket_has_the_documented_bytes() {
        // Python: hmac.new(b"\x07" * 32, b"quiver ticket 1\0" + struct.pack(">I3sBIQ", 3, b"run", 1, 3, 7), "sha256").
        let ticket = IDENTITY.ticket(&TicketKey::from_bytes(&[7; 32]).unwrap());
        let hex: String = ticket.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "eeeb45f52f848f3f485c10d42038434d17fd1535332c94bc663caea580c9332e");
    }
}
