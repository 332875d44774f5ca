//! The saved state of an environment without a ROM: an emulator's is C++, which only ever reads what it wrote itself.
//!
//! Input: 1 byte (bit 0: the rest is the body of an envelope that is still to be sealed; other bits: which environment), then
//! the saved state or that body.

use envs::Environment;
use serde::de::DeserializeOwned;
use settings::Settings;

/// Steps that are played after a restore: more than an episode of CartPole has.
const STEPS: usize = 250;

/// Environments that save their state and need no ROM.
fn games() -> Vec<&'static str> {
    let entries = envs::entries().iter().filter(|entry| entry.saves_state && !entry.needs_rom);
    entries.map(|entry| entry.name).collect()
}

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let games = games();
    let game = games[usize::from(kind >> 1) % games.len()];
    let saved = if kind & 1 == 1 { sealed(game, rest) } else { rest.to_vec() };
    let mut environment = made(game);
    let before = environment.save();
    if environment.restore(&saved).is_err() {
        assert_eq!(environment.save(), before, "after an error nothing has changed");
        return;
    }
    let now = environment.save().expect("it saves its state");
    let mut other = made(game);
    other.restore(&now).expect("what was saved can be restored");
    assert_eq!(other.save().as_ref(), Some(&now));
    assert_eq!(other.observation(), environment.observation());
    // The saved episode may be over, and stepping after the end is a mistake of the caller.
    environment.reset();
    play(environment.as_mut());
    other.restore(&now).expect("what was saved can be restored");
    if !has_ended(game, &now) {
        play(other.as_mut());
    }
}

/// Steps stay within the rules for any start of the episode.
fn play(environment: &mut dyn Environment) {
    let actions = environment.spec().actions.len();
    for step in 0..STEPS {
        let outcome = environment.step(step % actions);
        assert!(outcome.reward.is_finite() && !(outcome.terminated && outcome.truncated));
        if outcome.done() {
            environment.reset();
        }
    }
}

fn made(game: &str) -> Box<dyn Environment> {
    envs::make(game, &Settings::paper().environment(), 1).expect("it needs nothing")
}

/// Whether the saved episode is over: behind format and name come the fields of its state, in order.
fn has_ended(game: &str, saved: &[u8]) -> bool {
    type CartPole = ([f64; 4], u32);
    type Cell = (i8, i8);
    type Breakout = (i8, [Cell; 3], u32, bool);
    type Asterix = (Cell, [Option<(i8, bool, bool)>; 8], [u8; 4], i8, u8);
    type Freeway = (i8, u8, i16, [(i8, u8, u8, bool); 8]);
    type Mover = (i8, i8, bool);
    type Swimmer = (Mover, u8);
    type Objects = ([Vec<Mover>; 2], Vec<Swimmer>, Vec<(Swimmer, u8)>, Vec<Swimmer>);
    type Seaquest = (Mover, i16, i32, bool, Objects, [u8; 6]);
    type SpaceInvaders = (i8, [u128; 3], bool, [u8; 4]);
    let body = &saved[8..];
    match game {
        envs::CARTPOLE => ended::<CartPole>(body),
        "minatar_asterix" => minatar_ended::<Asterix>(body),
        "minatar_breakout" => minatar_ended::<Breakout>(body),
        "minatar_freeway" => minatar_ended::<Freeway>(body),
        "minatar_seaquest" => minatar_ended::<Seaquest>(body),
        "minatar_space_invaders" => minatar_ended::<SpaceInvaders>(body),
        // Of other environments only the restore is attacked.
        _ => true,
    }
}

/// The flag behind the rules, the last action and the number of steps.
fn minatar_ended<Rules: DeserializeOwned>(body: &[u8]) -> bool {
    ended::<(Rules, u64, u32)>(body)
}

/// The flag behind `Before`.
fn ended<Before: DeserializeOwned>(body: &[u8]) -> bool {
    type Header = (u32, String);
    let state = postcard::take_from_bytes::<(Header, Before, bool)>(body);
    state.expect("the types above are those of the states").0.2
}

/// FNV-1a over 64 bits, then the body: format, name, and what the input says.
fn sealed(game: &str, state: &[u8]) -> Vec<u8> {
    let body = [&postcard::to_stdvec(&(1u32, game)).expect("a header can be written")[..], state].concat();
    let checksum = body
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    [&checksum.to_le_bytes()[..], &body].concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (index, game) in games().into_iter().enumerate() {
        let kind = (index as u8) << 1;
        let mut environment = made(game);
        let header = postcard::to_stdvec(&(1u32, game)).expect("a header can be written").len();
        for _ in 0..3 {
            for action in [1, 0, 1] {
                environment.step(action);
            }
            let saved = environment.save().expect("it saves its state");
            seeds.push([&[kind][..], &saved].concat());
            seeds.push([&[kind | 1][..], &saved[8 + header..]].concat());
        }
    }
    seeds
}
