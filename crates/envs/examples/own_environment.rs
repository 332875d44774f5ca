//! Writes an environment and plays it: the trait [`Environment`] is all that a lane of an actor uses.
//!
//! To train on it, add it to the registry: CONTRIBUTING.md, "An environment". Run this example with
//! `cargo run --release -p quiver-envs --example own_environment`.

use envs::{Element, Environment, Image, Observation, Spec, StepOutcome};

const LENGTH: usize = 8;
/// The episode is cut off after this many steps.
const STEPS_MAX: u32 = 100;

/// A corridor: the right end gives the reward and ends the episode.
struct Corridor {
    spec: Spec,
    cell: usize,
    steps: u32,
    observation: Vec<u8>,
}

impl Corridor {
    fn new() -> Self {
        let spec = Spec {
            game: "corridor".into(),
            actions: vec!["left".into(), "right".into()],
            observation: Observation { element: Element::F32, shape: vec![LENGTH] },
            frames_per_step: 1,
        };
        let mut corridor = Self { spec, cell: 0, steps: 0, observation: Vec::new() };
        corridor.reset();
        corridor
    }

    /// One number per cell: 1 where the agent is.
    fn observe(&mut self) {
        let cells = (0..LENGTH).map(|cell| if cell == self.cell { 1.0f32 } else { 0.0 });
        self.observation = cells.flat_map(f32::to_le_bytes).collect();
    }
}

impl Environment for Corridor {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn reset(&mut self) {
        (self.cell, self.steps) = (0, 0);
        self.observe();
    }

    fn step(&mut self, action: usize) -> StepOutcome {
        self.cell = if action == 1 { self.cell + 1 } else { self.cell.saturating_sub(1) };
        self.steps += 1;
        let terminated = self.cell == LENGTH - 1;
        self.observe();
        StepOutcome {
            reward: if terminated { 1.0 } else { -0.01 },
            terminated,
            // The time limit is no property of the task, so the learner bootstraps from the last state.
            truncated: !terminated && self.steps == STEPS_MAX,
            life_lost: false,
            frames: 1,
        }
    }

    fn observation(&self) -> &[u8] {
        &self.observation
    }

    fn render(&mut self) -> Image {
        let rgb =
            (0..LENGTH).flat_map(|cell| if cell == self.cell { [255, 128, 0] } else { [40; 3] }).collect();
        Image { width: LENGTH, height: 1, rgb }
    }
}

fn main() {
    let mut corridor = Corridor::new();
    let mut score = 0.0;
    loop {
        let outcome = corridor.step(1);
        score += outcome.reward;
        let picture: String =
            corridor.render().rgb.chunks(3).map(|pixel| if pixel[0] == 255 { 'o' } else { '.' }).collect();
        println!("{picture}  score {score:.2}");
        if outcome.done() {
            break;
        }
    }
    assert!((score - 0.94).abs() < 1e-5, "six steps cost 0.01 each, the goal gives 1");
}
