//! The random numbers of a game: drawn from a seed in play, read from a record in a replay.

use std::fmt;
use std::ops::Range;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A source of random numbers. The order of a game's calls is part of its rules.
pub(super) trait Draws {
    /// Draws a uniform number from [0, 1). Whether it is below `probability`.
    fn chance(&mut self, probability: f64) -> bool;

    /// Draws an integer of `range`, which is not empty.
    fn integer(&mut self, range: Range<u8>) -> u8;

    /// Draws the integer 0 or 1. Whether it is 0.
    fn is_zero_of_two(&mut self) -> bool {
        self.integer(0..2) == 0
    }
}

impl Draws for ChaCha8Rng {
    /// A chance of 0 draws nothing.
    fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random_bool(probability)
    }

    fn integer(&mut self, range: Range<u8>) -> u8 {
        self.random_range(range)
    }

    /// Breakout drew a boolean before recorded games were replayed. A seed keeps its games.
    fn is_zero_of_two(&mut self) -> bool {
        self.random_bool(0.5)
    }
}

/// A recorded random number.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RandomDraw {
    /// A uniform number from [0, 1).
    Uniform(f64),
    /// An integer.
    Integer(u8),
    /// A number of a record that does not distinguish the two. Each request decides.
    Number(f64),
}

impl fmt::Display for RandomDraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RandomDraw::Uniform(number) => write!(f, "the uniform {number}"),
            RandomDraw::Integer(integer) => write!(f, "the integer {integer}"),
            RandomDraw::Number(number) => write!(f, "{number}"),
        }
    }
}

/// What a game asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A uniform number from [0, 1).
    Uniform,
    /// An integer of this range.
    Integer(Range<u8>),
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Uniform => write!(f, "a uniform in [0, 1)"),
            Request::Integer(range) => write!(f, "an integer from {} to {}", range.start, range.end - 1),
        }
    }
}

/// The first disagreement between a record and the game. Draws are counted from 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DrawError {
    /// The next draw has another kind, or is out of range.
    #[error("draw {position} is {draw}, but the game asks for {request}")]
    Other { position: usize, draw: RandomDraw, request: Request },
    /// The record is too short.
    #[error("all {count} draws are used, but the game asks for {request}")]
    Missing { count: usize, request: Request },
    /// The record is too long.
    #[error("{left} of {count} draws are left over")]
    LeftOver { left: usize, count: usize },
}

/// Draws from a record. After the first disagreement the numbers mean nothing, and [`Recorded::check`] is an error.
#[derive(Debug)]
pub(super) struct Recorded {
    draws: Vec<RandomDraw>,
    used: usize,
    error: Option<DrawError>,
}

impl Recorded {
    pub(super) fn new(draws: Vec<RandomDraw>) -> Self {
        Self { draws, used: 0, error: None }
    }

    /// Whether every request so far had its draw.
    pub(super) fn check(&self) -> Result<(), DrawError> {
        self.error.clone().map_or(Ok(()), Err)
    }

    /// Whether no draw is left.
    pub(super) fn check_end(&self) -> Result<(), DrawError> {
        let count = self.draws.len();
        match count - self.used {
            0 => Ok(()),
            left => Err(DrawError::LeftOver { left, count }),
        }
    }

    /// The next draw, as `read` understands it.
    fn next<T>(&mut self, request: Request, read: impl FnOnce(RandomDraw) -> Option<T>) -> Option<T> {
        if self.error.is_some() {
            return None;
        }
        let Some(&draw) = self.draws.get(self.used) else {
            self.error = Some(DrawError::Missing { count: self.used, request });
            return None;
        };
        self.used += 1;
        let number = read(draw);
        if number.is_none() {
            self.error = Some(DrawError::Other { position: self.used, draw, request });
        }
        number
    }
}

impl Draws for Recorded {
    /// Draws a number for every probability, as the package does.
    fn chance(&mut self, probability: f64) -> bool {
        let uniform = self.next(Request::Uniform, |draw| match draw {
            RandomDraw::Uniform(number) | RandomDraw::Number(number) => {
                (0.0..1.0).contains(&number).then_some(number)
            }
            RandomDraw::Integer(_) => None,
        });
        uniform.is_some_and(|uniform| uniform < probability)
    }

    fn integer(&mut self, range: Range<u8>) -> u8 {
        let first = range.start;
        let integer = self.next(Request::Integer(range.clone()), |draw| match draw {
            RandomDraw::Integer(integer) => range.contains(&integer).then_some(integer),
            RandomDraw::Number(number) => range.into_iter().find(|&integer| f64::from(integer) == number),
            RandomDraw::Uniform(_) => None,
        });
        integer.unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(draws: &[RandomDraw]) -> Recorded {
        Recorded::new(draws.to_vec())
    }

    fn message(recorded: &Recorded) -> String {
        recorded.check().unwrap_err().to_string()
    }

    #[test]
    fn recorded_numbers_come_in_order() {
        let mut draws = recorded(&[
            RandomDraw::Uniform(0.1),
            RandomDraw::Integer(3),
            RandomDraw::Number(0.75),
            RandomDraw::Number(2.0),
        ]);
        assert!(!draws.chance(0.1), "0.1 is not below 0.1");
        assert_eq!(draws.integer(0..4), 3);
        assert!(draws.check_end().is_err());
        assert!(draws.chance(0.8));
        assert_eq!(draws.integer(1..6), 2);
        assert_eq!((draws.check(), draws.check_end()), (Ok(()), Ok(())));
    }

    #[test]
    fn a_draw_that_does_not_fit_is_named() {
        let mut draws = recorded(&[RandomDraw::Uniform(0.5), RandomDraw::Integer(3)]);
        assert!(draws.chance(0.6));
        assert!(!draws.chance(1.0));
        assert_eq!(message(&draws), "draw 2 is the integer 3, but the game asks for a uniform in [0, 1)");
        draws.integer(0..8);
        assert_eq!(draws.check_end(), Ok(()), "nothing is used after an error");

        for draw in [
            RandomDraw::Integer(8),
            RandomDraw::Integer(0),
            RandomDraw::Uniform(0.5),
            RandomDraw::Number(1.5),
        ] {
            let mut draws = recorded(&[draw]);
            assert_eq!(draws.integer(1..8), 1);
            let expected = format!("draw 1 is {draw}, but the game asks for an integer from 1 to 7");
            assert_eq!(message(&draws), expected);
        }
        for number in [1.0, -0.1, f64::NAN] {
            let mut draws = recorded(&[RandomDraw::Number(number)]);
            draws.chance(0.5);
            assert!(draws.check().is_err(), "{number}");
        }
    }

    #[test]
    fn missing_and_unused_draws_are_counted() {
        let mut draws = recorded(&[RandomDraw::Uniform(0.5)]);
        assert_eq!(draws.check_end().unwrap_err().to_string(), "1 of 1 draws are left over");
        draws.chance(0.5);
        draws.chance(0.5);
        assert_eq!(message(&draws), "all 1 draws are used, but the game asks for a uniform in [0, 1)");
    }
}
