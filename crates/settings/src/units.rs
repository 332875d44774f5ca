//! Units that must not be mixed up: emulator frames, agent steps, learner updates, items, bytes.
//!
//! With a frame skip of 4, an agent step is four frames. At 8 samples per insert and batches of 32, an update is four agent
//! steps. So three counts of the same training differ by factors of four, and each has its own type.

use replay::BYTE_UNITS;
use serde::{Deserialize, Serialize};

use crate::text::Text;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl Text for $name {
            fn read(text: &str) -> Result<Self, String> {
                read_count(text).map($name)
            }
            fn show(&self) -> String {
                self.0.to_string()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&grouped(self.0))
            }
        }
    )*};
}

counts! {
    /// Emulator frames, the budget unit of the DQN Atari papers.
    Frames,
    /// Agent steps: decisions of the agent, one per `frame_skip` frames.
    AgentSteps,
    /// Gradient steps of the learner.
    Updates,
    /// Training episodes.
    Episodes,
    /// Transitions in the replay.
    Items,
}

/// A number of bytes, written with `KiB`, `MiB`, `GiB` (or `kB`, `MB`, `GB`) or as a plain count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Text for Bytes {
    fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        for (unit, size) in BYTE_UNITS {
            if let Some(number) = text.strip_suffix(unit) {
                let number: f64 = number.trim().parse().map_err(|_| byte_error(text))?;
                return whole(number * size as f64).map(Bytes).ok_or_else(|| byte_error(text));
            }
        }
        read_count(text).map(Bytes).map_err(|_| byte_error(text))
    }

    fn show(&self) -> String {
        match BYTE_UNITS[..3].iter().find(|(_, size)| self.0 > 0 && self.0.is_multiple_of(*size)) {
            Some((unit, size)) => format!("{}{unit}", self.0 / size),
            None => self.0.to_string(),
        }
    }
}

fn byte_error(text: &str) -> String {
    format!("expected a size such as 8GiB or 500MB, got '{text}'")
}

/// Parses `40000000`, `40_000_000`, `40M`, `2.5k` or `4e7`.
fn read_count(text: &str) -> Result<u64, String> {
    let error = || format!("expected a count such as 200k, 40M or 1000, got '{text}'");
    let plain = text.trim().replace(['_', ','], "");
    if let Ok(count) = plain.parse() {
        return Ok(count);
    }
    let (digits, scale) = match plain.char_indices().last() {
        Some((at, 'k' | 'K')) => (&plain[..at], 1e3),
        Some((at, 'M' | 'm')) => (&plain[..at], 1e6),
        Some((at, 'B' | 'G')) => (&plain[..at], 1e9),
        _ => (plain.as_str(), 1.0),
    };
    let number: f64 = digits.parse().map_err(|_| error())?;
    whole(number * scale).ok_or_else(error)
}

/// The number as an integer, if it is one (up to rounding) and f64 represents it exactly.
fn whole(number: f64) -> Option<u64> {
    let rounded = number.round();
    ((0.0..9e15).contains(&number) && (number - rounded).abs() < 1e-6).then_some(rounded as u64)
}

/// Groups digits by three: `1,200,000`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 h 2 min`, `3 min 20 s` or `12 s`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_parse_in_all_usual_notations() {
        for (text, expected) in
            [("40M", 40_000_000), ("40_000_000", 40_000_000), ("4e7", 40_000_000), ("2.5k", 2500), ("0", 0)]
        {
            assert_eq!(Frames::read(text), Ok(Frames(expected)), "{text}");
        }
        for text in ["", "-1", "M", "1.5", "nan", "inf", "1e300", "4x"] {
            assert!(Frames::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_round_trip_through_their_units() {
        for text in ["8GiB", "500MiB", "1000", "0"] {
            assert_eq!(Bytes::read(text).unwrap().show(), text);
        }
        assert_eq!(Bytes::read("1.5GB"), Ok(Bytes(1_500_000_000)));
        assert!(Bytes::read("lots").is_err());
    }

    #[test]
    fn digits_are_grouped_by_three() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_200_000), "1,200,000");
    }
    #[test]
    fn durations_use_two_units() {
        assert_eq!(duration(12.4), "12 s");
        assert_eq!(duration(200.0), "3 min 20 s");
        assert_eq!(duration(3725.0), "1 h 2 min");
    }
}
