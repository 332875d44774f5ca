//! Presses FIRE in games that wait for it.
//!
//! The steps here are the environment's own steps, with frame skip and sticky actions, but they are not the agent's: they are
//! not learned from, and their frames are counted no more than those of no-op starts. Rewards count for the score.

use envs::{Environment, Spec};

/// The actions of a set with FIRE, by number.
const NOOP: usize = 0;
const FIRE: usize = 1;
/// Pressed after FIRE, in case that this is what the game waits for.
const NEXT: usize = 2;

/// Whether FIRE is pressed in games with this action set: where it is action 1 of at least three, as in the wrapper
/// `FireResetEnv` of OpenAI's Baselines.
pub fn has_fire(spec: &Spec) -> bool {
    spec.actions.len() > NEXT && spec.actions[FIRE] == "fire"
}

/// Presses FIRE and the next action in a game that has just started, and returns the rewards. A game that ends meanwhile is
/// dropped with its rewards, as one that ends within a no-op start is. The presses do not begin again then, since a time
/// limit may end every game here.
pub fn start(environment: &mut dyn Environment) -> f64 {
    let mut score = 0.0;
    for action in [FIRE, NEXT] {
        let outcome = environment.step(action);
        score += f64::from(outcome.reward);
        if outcome.done() {
            environment.reset();
            score = 0.0;
        }
    }
    score
}

/// The end of a game, in the steps of [`resume`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GameEnded {
    /// The time limit cut it off.
    pub truncated: bool,
}

/// Does nothing for a step and presses FIRE and the next action, in a game that has lost a life. Returns the rewards, and
/// whether the game has ended meanwhile; then the remaining steps are left out.
pub fn resume(environment: &mut dyn Environment) -> (f64, Option<GameEnded>) {
    let mut score = 0.0;
    for action in [NOOP, FIRE, NEXT] {
        let outcome = environment.step(action);
        score += f64::from(outcome.reward);
        if outcome.done() {
            return (score, Some(GameEnded { truncated: outcome.truncated }));
        }
    }
    (score, None)
}
