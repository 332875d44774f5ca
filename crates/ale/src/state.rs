//! The envelope of a saved emulator state.
//!
//! ALE restores a state without checking it. So a saved state has a magic number, the name of its game and a checksum,
//! and ALE receives only states that pass these checks.

use crate::AleError;

/// Identifies the format and the version of ALE whose layout the payload has.
const MAGIC: &[u8; 16] = b"quiver ale0.12.1";

/// Layout: magic, checksum of everything after it, length of the game's name, name, payload.
pub(crate) fn seal(game: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(1 + game.len() + payload.len());
    body.push(u8::try_from(game.len()).expect("the names of games are short"));
    body.extend_from_slice(game.as_bytes());
    body.extend_from_slice(payload);
    [MAGIC.as_slice(), &checksum(&body).to_le_bytes(), &body].concat()
}

/// The payload, if `bytes` is an intact state of `game`.
pub(crate) fn open<'a>(game: &str, bytes: &'a [u8]) -> Result<&'a [u8], AleError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(AleError::DamagedState("it has no magic number"))?;
    let (sum, body) = rest.split_first_chunk().ok_or(AleError::DamagedState("it is truncated"))?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return Err(AleError::DamagedState("its checksum is wrong"));
    }
    let (&length, rest) = body.split_first().ok_or(AleError::DamagedState("it is truncated"))?;
    let (name, payload) =
        rest.split_at_checked(usize::from(length)).ok_or(AleError::DamagedState("it is truncated"))?;
    if name != game.as_bytes() {
        let saved = String::from_utf8_lossy(name).into_owned();
        return Err(AleError::OtherGame { saved, loaded: game.to_owned() });
    }
    Ok(payload)
}

/// FNV-1a over 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_state_can_be_opened() {
        let sealed = seal("pong", b"state");
        assert_eq!(open("pong", &sealed).unwrap(), b"state");
    }

    #[test]
    fn the_error_for_a_state_of_another_game_names_both_games() {
        let error = open("alien", &seal("pong", b"state")).unwrap_err();
        assert_eq!(error.to_string(), "the state is of the game 'pong', not 'alien'");
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_detected() {
        let sealed = seal("pong", b"state");
        for length in 0..sealed.len() {
            assert!(
                matches!(open("pong", &sealed[..length]), Err(AleError::DamagedState(_))),
                "cut at {length}"
            );
        }
        for bit in 0..8 * sealed.len() {
            let mut damaged = sealed.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(open("pong", &damaged), Err(AleError::DamagedState(_))), "bit {bit}");
        }
    }
}
