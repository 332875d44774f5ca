//! The saved state of an environment. CartPole's: an emulator's is C++, which only ever sees what it wrote itself.
//!
//! Input: whether the rest is sealed (1 byte), then the whole of what was saved, or what lies in the envelope.

use envs::Environment;
use run::Settings;

const GAME: &str = envs::CARTPOLE;

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let saved = if kind & 1 == 1 { sealed(rest) } else { rest.to_vec() };
    let mut environment = made();
    let before = environment.save();
    if environment.restore(&saved).is_err() {
        assert_eq!(environment.save(), before, "after an error nothing has changed");
        return;
    }
    let now = environment.save().expect("CartPole saves its state");
    let mut other = made();
    other.restore(&now).expect("what was saved can be restored");
    assert_eq!(other.save().as_ref(), Some(&now));
    assert_eq!(other.observation(), environment.observation());
    if !has_ended(&now) {
        play(environment.as_mut());
    }
    environment.reset();
    play(environment.as_mut());
}

/// An episode ends, whatever it began with.
fn play(environment: &mut dyn Environment) {
    let ends = (0..200).any(|step| {
        let outcome = environment.step(step % 2);
        assert!(outcome.reward.is_finite() && !(outcome.terminated && outcome.truncated));
        outcome.done()
    });
    assert!(ends, "no episode has more than 200 steps");
}

fn made() -> Box<dyn Environment> {
    envs::make(GAME, &Settings::paper().environment(), 1).expect("cartpole needs nothing")
}

/// Whether the saved episode is over: behind format and name are four numbers, the steps, and this.
fn has_ended(saved: &[u8]) -> bool {
    type Beginning = ((u32, String), [f64; 4], u32, bool);
    let read = postcard::take_from_bytes::<Beginning>(&saved[8..]);
    read.is_ok_and(|(beginning, _)| beginning.3)
}

/// FNV-1a over 64 bits, then the body: format, name, and what the input says.
fn sealed(state: &[u8]) -> Vec<u8> {
    let body = [&postcard::to_stdvec(&(1u32, GAME)).expect("a header can be written")[..], state].concat();
    let checksum = body.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    [&checksum.to_le_bytes()[..], &body].concat()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut environment = made();
    let header = postcard::to_stdvec(&(1u32, GAME)).expect("a header can be written").len();
    let mut seeds = Vec::new();
    for _ in 0..3 {
        for action in [1, 0, 1] {
            environment.step(action);
        }
        let saved = environment.save().expect("CartPole saves its state");
        seeds.push([&[0][..], &saved].concat());
        seeds.push([&[1][..], &saved[8 + header..]].concat());
    }
    seeds
}
