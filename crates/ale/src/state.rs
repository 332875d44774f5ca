//! The envelope around an emulator's state.
//!
//! ALE reads a state without checking it, and would run on whatever it finds. So a saved state says what it is, of which
//! game, and has a checksum; ALE sees nothing that fails these.

use crate::AleError;

/// The format, and the version of ALE whose layout is inside.
const MAGIC: &[u8; 16] = b"quiver ale0.12.1";

/// Magic, checksum of all that follows, length of the game's name, name, payload.
pub(crate) fn seal(game: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(1 + game.len() + payload.len());
    body.push(u8::try_from(game.len()).expect("the names of games are short"));
    body.extend_from_slice(game.as_bytes());
    body.extend_from_slice(payload);
    [MAGIC.as_slice(), &checksum(&body).to_le_bytes(), &body].concat()
}

/// The payload, if `bytes` is a whole state of `game`.
pub(crate) fn open<'a>(game: &str, bytes: &'a [u8]) -> Result<&'a [u8], AleError> {
    let rest = bytes.strip_prefix(MAGIC).ok_or(AleError::DamagedState("it does not start as one"))?;
    let (sum, body) = rest.split_first_chunk().ok_or(AleError::DamagedState("it is cut short"))?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return Err(AleError::DamagedState("its checksum is wrong"));
    }
    let (&length, rest) = body.split_first().ok_or(AleError::DamagedState("it is cut short"))?;
    let (name, payload) =
        rest.split_at_checked(usize::from(length)).ok_or(AleError::DamagedState("it is cut short"))?;
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
    fn what_is_sealed_can_be_opened() {
        let sealed = seal("pong", b"state");
        assert_eq!(open("pong", &sealed).unwrap(), b"state");
    }

    #[test]
    fn a_state_of_another_game_is_refused_by_name() {
        let error = open("alien", &seal("pong", b"state")).unwrap_err();
        assert_eq!(error.to_string(), "the state is of the game 'pong', not 'alien'");
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
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
