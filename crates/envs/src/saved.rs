//! The envelope of a saved environment: format, game and a checksum, so that a damaged checkpoint is an error instead of a
//! corrupt game.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::EnvError;

/// Raised when the layout of any state changes.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    game: String,
}

/// Checksum, header, state.
pub(crate) fn seal<T: Serialize>(game: &str, state: &T) -> Vec<u8> {
    let header = Header { format: FORMAT, game: game.to_owned() };
    let body = postcard::to_extend(&(header, state), vec![0; 8]);
    let mut bytes = body.expect("memory is the only thing that writing to a vector can lack");
    let sum = checksum(&bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The state of `game` in `bytes`.
pub(crate) fn open<T: DeserializeOwned>(game: &str, bytes: &[u8]) -> Result<T, EnvError> {
    let (sum, body) = bytes.split_first_chunk().ok_or(EnvError::DamagedState("it is cut short"))?;
    if u64::from_le_bytes(*sum) != checksum(body) {
        return Err(EnvError::DamagedState("its checksum is wrong"));
    }
    let unreadable = |_| EnvError::DamagedState("it cannot be read");
    let (header, rest) = postcard::take_from_bytes::<Header>(body).map_err(unreadable)?;
    if header.format != FORMAT {
        return Err(EnvError::DamagedState("it was saved by another version"));
    }
    if header.game != game {
        return Err(EnvError::OtherGame { saved: header.game, playing: game.to_owned() });
    }
    postcard::from_bytes(rest).map_err(unreadable)
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
    fn what_is_sealed_can_be_opened_by_the_same_game_only() {
        let bytes = seal("pong", &(1u8, vec![2.5f64]));
        assert_eq!(open::<(u8, Vec<f64>)>("pong", &bytes).unwrap(), (1, vec![2.5]));
        let error = open::<(u8, Vec<f64>)>("alien", &bytes).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the saved environment plays 'pong', not 'alien': resume with the game of the checkpoint"
        );
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_noticed() {
        let bytes = seal("pong", &(1u8, vec![2.5f64]));
        let damaged =
            |bytes: &[u8]| matches!(open::<(u8, Vec<f64>)>("pong", bytes), Err(EnvError::DamagedState(_)));
        assert!((0..bytes.len()).all(|length| damaged(&bytes[..length])));
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(damaged(&flipped), "bit {bit}");
        }
    }
}
