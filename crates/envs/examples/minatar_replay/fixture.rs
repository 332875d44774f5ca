//! Reads a recorded MinAtar game (`docs/minatar-fixtures.md`).

use std::fmt;

use envs::minatar_replay::{RandomDraw, RecordedGame};
use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde_json::Number;

/// The only value of the field `format`.
const FORMAT: &str = "quiver-minatar-replay 1";

/// Hexadecimal digits of a packed uniform, which is a multiple of 2^-53.
const UNIFORM_DIGITS: usize = 14;
const UNIFORM_SCALE: u64 = 1 << 53;

/// A recorded game. Fields that a replay can do without are compared if they are present.
#[derive(Debug, serde::Deserialize)]
pub struct Fixture {
    pub game: String,
    pub sticky_action_prob: f64,
    pub difficulty_ramping: bool,
    pub actions: Actions,
    pub draws: Draws,
    pub format: Option<String>,
    pub steps: Option<usize>,
    pub episodes_ended: Option<usize>,
    pub reward_sum: Option<f64>,
    pub start: Option<String>,
    pub hashes: Option<Hashes>,
    pub digest: Option<String>,
}

impl Fixture {
    /// Reads and checks a file.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        let fixture: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        fixture.check().map(|()| fixture)
    }

    fn check(&self) -> Result<(), String> {
        if let Some(format) = self.format.as_ref().filter(|format| *format != FORMAT) {
            return Err(format!("the format is \"{format}\", but only \"{FORMAT}\" is known"));
        }
        if !RecordedGame::games().any(|game| game == self.game) {
            let games: Vec<_> = RecordedGame::games().collect();
            return Err(format!("unknown game \"{}\": the games are {}", self.game, games.join(", ")));
        }
        if !(0.0..=1.0).contains(&self.sticky_action_prob) {
            return Err(format!("sticky_action_prob is {}, but must be 0 to 1", self.sticky_action_prob));
        }
        let steps = self.actions.0.len();
        if let Some(stated) = self.steps.filter(|stated| *stated != steps) {
            return Err(format!("steps is {stated}, but there are {steps} actions"));
        }
        match &self.hashes {
            Some(Hashes::Joined(text)) if !text.is_ascii() => {
                Err("hashes contains other characters than digits".into())
            }
            Some(Hashes::Joined(text)) if steps == 0 || text.len() % steps != 0 || text.is_empty() => {
                let length = text.len();
                Err(format!("hashes has {length} digits, which is not a multiple of {steps} steps"))
            }
            Some(Hashes::Listed(list)) if list.len() != steps => {
                Err(format!("there are {} hashes for {steps} steps", list.len()))
            }
            _ => Ok(()),
        }
    }

    /// The recorded prefix of the hash of a step, counted from 0.
    pub fn hash(&self, step: usize) -> Option<&str> {
        match self.hashes.as_ref()? {
            Hashes::Listed(list) => list.get(step).map(String::as_str),
            Hashes::Joined(text) => {
                let digits = text.len() / self.actions.0.len();
                text.get(step * digits..(step + 1) * digits)
            }
        }
    }
}

/// The requested actions.
#[derive(Debug)]
pub struct Actions(pub Vec<u8>);

impl<'de> Deserialize<'de> for Actions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ActionsVisitor)
    }
}

struct ActionsVisitor;

fn action<E: Error>(step: usize, is: Option<u64>, shown: &dyn fmt::Display) -> Result<u8, E> {
    let known = is.filter(|action| *action < RecordedGame::ACTIONS as u64);
    let known = known.and_then(|action| u8::try_from(action).ok());
    known.ok_or_else(|| E::custom(format!("the action of step {step} is {shown}, but must be 0 to 5")))
}

impl<'de> Visitor<'de> for ActionsVisitor {
    type Value = Actions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string of digits or a list of integers")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Actions, E> {
        let digits = text.chars().enumerate();
        let actions =
            digits.map(|(index, digit)| action(index + 1, digit.to_digit(10).map(u64::from), &digit));
        Ok(Actions(actions.collect::<Result<_, _>>()?))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Actions, A::Error> {
        let mut actions = Vec::new();
        while let Some(number) = list.next_element::<Number>()? {
            actions.push(action(actions.len() + 1, number.as_u64(), &number)?);
        }
        Ok(Actions(actions))
    }
}

/// The recorded random numbers.
#[derive(Debug)]
pub struct Draws(pub Vec<RandomDraw>);

impl<'de> Deserialize<'de> for Draws {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DrawsVisitor)
    }
}

struct DrawsVisitor;

impl<'de> Visitor<'de> for DrawsVisitor {
    type Value = Draws;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string of packed numbers or a list of numbers")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Draws, E> {
        unpack(text).map(Draws).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Draws, A::Error> {
        let mut draws = Vec::new();
        while let Some(number) = list.next_element::<Number>()? {
            let unreadable = || A::Error::invalid_value(Unexpected::Other("a huge number"), &"a draw");
            draws.push(RandomDraw::Number(number.as_f64().ok_or_else(unreadable)?));
        }
        Ok(Draws(draws))
    }
}

/// Reads packed draws: a capital letter is an integer, 14 hexadecimal digits are a uniform.
fn unpack(text: &str) -> Result<Vec<RandomDraw>, String> {
    let (mut draws, mut at) = (Vec::new(), 0);
    while let Some(&letter) = text.as_bytes().get(at) {
        if letter.is_ascii_uppercase() {
            draws.push(RandomDraw::Integer(letter - b'A'));
            at += 1;
            continue;
        }
        let digits = text.get(at..at + UNIFORM_DIGITS).filter(|digits| {
            digits.bytes().all(|digit| digit.is_ascii_hexdigit() && !digit.is_ascii_uppercase())
        });
        let scaled = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let Some(scaled) = scaled.filter(|scaled| *scaled < UNIFORM_SCALE) else {
            let (draw, at) = (draws.len() + 1, at + 1);
            return Err(format!(
                "draw {draw}, at character {at} of draws, is neither a capital letter nor 14 hexadecimal digits below 2^53"
            ));
        };
        draws.push(RandomDraw::Uniform(scaled as f64 / UNIFORM_SCALE as f64));
        at += UNIFORM_DIGITS;
    }
    Ok(draws)
}

/// The recorded hashes, each a prefix.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
pub enum Hashes {
    /// Equally long prefixes, one after another.
    Joined(String),
    Listed(Vec<String>),
}
