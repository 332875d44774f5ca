//! CartPole, the classic control problem of Barto, Sutton and Anderson (1983) with the limits of Gym's version 0.
//!
//! A cart on a track carries a pole; pushing left or right has to keep the pole up. It learns in minutes and needs no
//! ROM, so it is the environment of most tests.

use std::borrow::Cow;
use std::f64::consts::PI;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::EnvEntry;
use crate::{Element, EnvError, EnvOptions, Environment, Image, Observation, Spec, StepOutcome, saved};

/// The name of CartPole, for experiments that are about it.
pub const CARTPOLE: &str = "cartpole";

const NAME: &str = CARTPOLE;

const GRAVITY: f64 = 9.8;
const CART_MASS: f64 = 1.0;
const POLE_MASS: f64 = 0.1;
const HALF_POLE: f64 = 0.5;
const FORCE: f64 = 10.0;
const SECONDS_PER_STEP: f64 = 0.02;
const MAX_POSITION: f64 = 2.4;
const MAX_ANGLE: f64 = 12.0 * PI / 180.0;
const START_RANGE: f64 = 0.05;
/// Version 0 ends here; the pole may still be up, so it is a truncation.
const MAX_STEPS: u32 = 200;

/// CartPole in the registry.
pub(super) fn entry() -> EnvEntry {
    EnvEntry {
        name: NAME,
        aliases: &[],
        display_name: Cow::Borrowed("CartPole"),
        suite: NAME,
        default_preset: NAME,
        observation: observation(),
        frames_per_second: 1.0 / SECONDS_PER_STEP,
        needs_rom: false,
        saves_state: true,
        // The dynamics are version 0's and take no options.
        fixed_settings: &[
            ("frame_skip", "1"),
            ("frame_maximum", "rgb"),
            ("noop_max", "0"),
            ("time_limit_frames", "200"),
            ("sticky_actions", "0"),
            ("action_set", "minimal"),
            ("difficulty_ramping", "true"),
            ("life_loss_refills", "false"),
            ("press_fire", "never"),
        ],
        make,
    }
}

fn make(_entry: &EnvEntry, _options: &EnvOptions, seed: u64) -> Result<Box<dyn Environment>, EnvError> {
    Ok(Box::new(CartPole::new(seed)))
}

fn observation() -> Observation {
    Observation { element: Element::F32, shape: vec![4] }
}

/// The saved state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    /// Position, velocity, angle, angular velocity: metres, radians, seconds.
    physics: [f64; 4],
    steps: u32,
    ended: bool,
    rng: ChaCha8Rng,
}

struct CartPole {
    spec: Spec,
    state: State,
    observation: [u8; 16],
}

impl CartPole {
    fn new(seed: u64) -> CartPole {
        let spec = Spec {
            game: NAME.to_owned(),
            actions: vec!["left".to_owned(), "right".to_owned()],
            observation: observation(),
            frames_per_step: 1,
        };
        let rng = ChaCha8Rng::seed_from_u64(seed);
        let state = State { physics: [0.0; 4], steps: 0, ended: false, rng };
        let mut cartpole = CartPole { spec, state, observation: [0; 16] };
        cartpole.reset();
        cartpole
    }

    fn observe(&mut self) {
        for (bytes, value) in self.observation.chunks_exact_mut(4).zip(self.state.physics) {
            bytes.copy_from_slice(&(value as f32).to_le_bytes());
        }
    }
}

/// One step of Euler's method, as Gym integrates: positions move with the old velocities.
fn push([x, velocity, angle, spin]: [f64; 4], force: f64) -> [f64; 4] {
    let mass = CART_MASS + POLE_MASS;
    let (sin, cos) = angle.sin_cos();
    let push = (force + POLE_MASS * HALF_POLE * spin * spin * sin) / mass;
    let spin_up = (GRAVITY * sin - cos * push) / (HALF_POLE * (4.0 / 3.0 - POLE_MASS * cos * cos / mass));
    let speed_up = push - POLE_MASS * HALF_POLE * spin_up * cos / mass;
    [
        x + SECONDS_PER_STEP * velocity,
        velocity + SECONDS_PER_STEP * speed_up,
        angle + SECONDS_PER_STEP * spin,
        spin + SECONDS_PER_STEP * spin_up,
    ]
}

impl Environment for CartPole {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self) {
        let state = &mut self.state;
        state.physics = std::array::from_fn(|_| state.rng.random_range(-START_RANGE..START_RANGE));
        state.steps = 0;
        state.ended = false;
        self.observe();
    }

    fn step(&mut self, action: usize) -> StepOutcome {
        assert!(action < self.spec.actions.len(), "no action {action} in {NAME}");
        debug_assert!(!self.state.ended, "step after the end of an episode");
        let state = &mut self.state;
        state.physics = push(state.physics, if action == 1 { FORCE } else { -FORCE });
        state.steps += 1;
        let [x, _, angle, _] = state.physics;
        let terminated = x.abs() > MAX_POSITION || angle.abs() > MAX_ANGLE;
        let truncated = !terminated && state.steps >= MAX_STEPS;
        state.ended = terminated || truncated;
        self.observe();
        StepOutcome { reward: 1.0, terminated, truncated, life_lost: false, frames: 1 }
    }

    fn observation(&self) -> &[u8] {
        &self.observation
    }

    fn render(&mut self) -> Image {
        draw(self.state.physics[0], self.state.physics[2])
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(saved::seal(NAME, &self.state))
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), EnvError> {
        let state: State = saved::open(NAME, state)?;
        let real = state.physics.iter().all(|number| number.is_finite());
        let in_time = state.steps < MAX_STEPS || (state.ended && state.steps == MAX_STEPS);
        if !real || !in_time {
            return Err(EnvError::DamagedState("no game comes to it"));
        }
        self.state = state;
        self.observe();
        Ok(())
    }
}

/// A picture of the track, the cart and the pole, to scale.
fn draw(position: f64, angle: f64) -> Image {
    let (width, height) = (300, 200);
    let pixels_per_metre = width as f64 / (2.0 * MAX_POSITION + 0.6);
    let (track, pole) = (150.0, 2.0 * HALF_POLE * pixels_per_metre);
    let middle = width as f64 / 2.0 + position * pixels_per_metre;
    let (sin, cos) = angle.sin_cos();
    let mut rgb = Vec::with_capacity(3 * width * height);
    for y in 0..height {
        for x in 0..width {
            // Seen from the pole's foot: along it and across it.
            let (right, up) = (x as f64 - middle, track - 10.0 - y as f64);
            let (along, across) = (right * sin + up * cos, right * cos - up * sin);
            rgb.extend_from_slice(if (0.0..pole).contains(&along) && across.abs() < 3.0 {
                &[202, 152, 101]
            } else if right.abs() < 18.0 && (-20.0..0.0).contains(&up) {
                &CART_COLOUR
            } else if y == track as usize + 10 {
                &[120, 120, 120]
            } else {
                &[255, 255, 255]
            });
        }
    }
    Image { width, height, rgb }
}

const CART_COLOUR: [u8; 3] = [40, 40, 40];

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(environment: &dyn Environment) -> [f32; 4] {
        let bytes = environment.observation();
        std::array::from_fn(|i| f32::from_le_bytes(bytes[4 * i..][..4].try_into().unwrap()))
    }

    /// The expected numbers were computed independently, from the published equations, with 50 decimal digits.
    #[test]
    fn the_dynamics_match_an_independent_calculation() {
        let mut physics = [0.01, -0.02, 0.03, 0.04];
        for force in [FORCE, FORCE, -FORCE] {
            physics = push(physics, force);
        }
        let expected = [0.020480543436110218, 0.17387081260481596, 0.01542103307979687, -0.2251374160923747];
        for (got, expected) in physics.iter().zip(expected) {
            let got: f64 = *got;
            assert!((got - expected).abs() < 1e-14, "{physics:?}");
        }
    }

    #[test]
    fn a_constant_push_drops_the_pole_and_ends_the_episode() {
        let mut cartpole = CartPole::new(1);
        let steps = (1..).find(|_| cartpole.step(1).terminated).unwrap();
        assert!((8..=11).contains(&steps), "{steps} steps");
    }

    #[test]
    fn an_episode_starts_near_the_middle_and_differs_by_seed() {
        let starts: Vec<[f32; 4]> = (0..50).map(|seed| observed(&CartPole::new(seed))).collect();
        assert!(starts.iter().flatten().all(|value| value.abs() <= 0.05));
        assert!((1..50).all(|i| starts[i] != starts[0]));
        assert_eq!(observed(&CartPole::new(7)), starts[7]);
    }

    /// Pushes towards the side to which the pole leans and falls: enough to balance for 200 steps.
    fn balance(environment: &dyn Environment) -> usize {
        let [_, _, angle, spin] = observed(environment);
        usize::from(angle + 0.5 * spin > 0.0)
    }

    #[test]
    fn a_balanced_pole_is_truncated_at_200_steps() {
        let mut cartpole = CartPole::new(3);
        for _ in 1..MAX_STEPS {
            let action = balance(&cartpole);
            assert!(!cartpole.step(action).done());
        }
        let action = balance(&cartpole);
        let last = cartpole.step(action);
        assert!(last.truncated && !last.terminated);
        cartpole.reset();
        assert!(!cartpole.step(0).done());
    }

    #[test]
    fn a_pole_that_falls_at_the_limit_is_terminated() {
        let mut cartpole = CartPole::new(3);
        cartpole.state.steps = MAX_STEPS - 1;
        cartpole.state.physics = [0.0, 0.0, MAX_ANGLE, 5.0];
        let last = cartpole.step(0);
        assert!(last.terminated && !last.truncated);
    }

    #[test]
    fn a_restored_environment_continues_like_the_original() {
        let mut original = CartPole::new(5);
        for i in 0..7 {
            original.step(i % 2);
        }
        let saved = original.save().unwrap();
        let mut restored = CartPole::new(99);
        restored.restore(&saved).unwrap();
        assert_eq!(restored.save().unwrap(), saved);
        for i in 0..300 {
            let action = if i % 50 < 25 { balance(&original) } else { i % 2 };
            assert_eq!(original.observation(), restored.observation());
            let outcome = original.step(action);
            assert_eq!(outcome, restored.step(action));
            if outcome.done() {
                original.reset();
                restored.reset();
            }
        }
        assert_eq!(original.save(), restored.save());
    }

    #[test]
    fn a_damaged_state_changes_nothing() {
        let mut cartpole = CartPole::new(5);
        let before = cartpole.save().unwrap();
        assert!(cartpole.restore(b"garbage").is_err());
        assert!(cartpole.restore(&before[..before.len() - 1]).is_err());
        let state = || cartpole.state.clone();
        let impossible = [
            State { steps: u32::MAX, ..state() },
            State { steps: MAX_STEPS, ..state() },
            State { physics: [0.0, 0.0, f64::NAN, 0.0], ..state() },
        ];
        for state in impossible.map(|state| saved::seal(NAME, &state)) {
            assert!(cartpole.restore(&state).is_err());
        }
        assert_eq!(cartpole.save().unwrap(), before);
    }

    #[test]
    fn the_picture_shows_a_cart_that_moves() {
        let cart = |image: &Image| image.rgb.chunks(3).filter(|pixel| *pixel == CART_COLOUR).count();
        let (left, right) = (draw(-1.0, 0.0), draw(1.0, 0.1));
        assert_eq!(left.rgb.len(), 3 * left.width * left.height);
        assert!(cart(&left) > 300 && cart(&right) > 300);
        assert_ne!(left, right);
    }
}
