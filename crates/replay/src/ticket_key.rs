//! The secret key of a run's tickets, which prove the identities of its writers.
//!
//! Only a container of bytes: the shard checks tickets with it (`rpc::ticket`), and a store directory persists it. It is
//! never printed: `Debug` hides it, and there is no `Display`.

use std::fmt;
use std::io;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a key: as many as HMAC-SHA-256 puts out.
pub const TICKET_KEY_BYTES: usize = 32;

/// A secret key.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketKey([u8; TICKET_KEY_BYTES]);

impl TicketKey {
    /// A new key from the kernel.
    pub fn random() -> io::Result<Self> {
        crate::store::directory::random().map(Self)
    }

    /// `None` if the length is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The inverse of [`TicketKey::to_hex`].
    pub fn from_hex(text: &str) -> Option<Self> {
        let mut key = [0; TICKET_KEY_BYTES];
        if text.len() != 2 * key.len() || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, pair) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// For a file that only its owner can read.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// For the message to a shard, and for computing tickets.
    pub fn as_bytes(&self) -> &[u8; TICKET_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(hidden)")
    }
}

impl Serialize for TicketKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for TicketKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The text is not repeated in the error: it may be a key with a typing error.
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("ticket_key has 64 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_not_printed_and_survives_a_file() {
        let key = TicketKey::random().unwrap();
        assert_ne!(key, TicketKey::random().unwrap());
        assert!(!format!("{key:?}").contains(&key.to_hex()));
        assert_eq!(TicketKey::from_hex(&key.to_hex()), Some(key.clone()));
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<TicketKey>(&text).unwrap(), key);
        for wrong in ["", "00", &"0".repeat(63), &"é".repeat(32), &"+0".repeat(32)] {
            assert_eq!(TicketKey::from_hex(wrong), None, "{wrong}");
        }
    }
}
