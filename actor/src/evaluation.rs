//! Plays whole games for their scores.
//!
//! Each game has its own environment and random generator, seeded by its number, so a game does not depend on how many
//! are played in parallel, nor on how many threads. Rewards are not clipped, and a lost life does not end an episode.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use agents::{Agent, Behaviour, QNetwork, sample};
use envs::stack::FrameStack;
use envs::{EnvError, Environment};
use rand_chacha::ChaCha8Rng;

use settings::Resolved;
use settings::choices::PressFire;
use settings::seed::{self, Purpose};

use crate::fire;

/// Games that a thread plays at the same time, so that one forward pass values several states. Which games these are depends on
/// their numbers only, so that the scores do not depend on the number of threads.
const GROUP: usize = 4;

/// How actions are chosen.
#[derive(Clone, Copy, Debug)]
pub enum PlayerKind<'a> {
    /// By an agent with its network and behaviour.
    Agent(&'a dyn Agent, &'a QNetwork, Behaviour),
    /// Uniformly at random in every step.
    Random,
    /// The same action in every step.
    Constant(usize),
}

/// The games of one evaluation.
#[derive(Clone, Debug)]
pub struct EvaluationGames<'a> {
    pub game: &'a str,
    pub options: &'a envs::EnvOptions,
    /// Frames per state.
    pub stack: usize,
    /// Whether FIRE is pressed at the start of a game that has it.
    pub press_fire: bool,
    /// Seed of the whole evaluation.
    pub seed: u64,
    /// Threads that play.
    pub threads: usize,
}

impl<'a> EvaluationGames<'a> {
    /// Games of a run, which are played with `options`.
    pub fn new(resolved: &'a Resolved, options: &'a envs::EnvOptions, seed: u64) -> Self {
        let Resolved { game, settings, .. } = resolved;
        let press_fire = settings.press_fire != PressFire::Never;
        Self { game, options, stack: settings.frame_stack, press_fire, seed, threads: 1 }
    }
}

/// The cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Why a game ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GameEnd {
    /// By its own rules.
    Terminated,
    /// By the time limit.
    TimeLimit,
}

/// One game in progress.
pub struct Game {
    environment: Box<dyn Environment>,
    stack: FrameStack,
    rng: ChaCha8Rng,
    score: f64,
    end: Option<GameEnd>,
}

impl Game {
    /// Starts game number `number`.
    pub fn start(games: &EvaluationGames<'_>, number: u64) -> Result<Self, EnvError> {
        let environment_seed = seed::number(games.seed, Purpose::EvaluationEnvironment, &[number]);
        let environment = envs::make(games.game, games.options, environment_seed)?;
        Ok(Self::start_in(environment, games, number))
    }

    /// Starts game number `number` in an environment at the start of its first episode.
    pub fn start_in(mut environment: Box<dyn Environment>, games: &EvaluationGames<'_>, number: u64) -> Self {
        let fires = games.press_fire && fire::has_fire(environment.spec());
        let score = if fires { fire::start(environment.as_mut()) } else { 0.0 };
        let mut stack = FrameStack::new(games.stack, environment.spec().observation.bytes());
        stack.reset(environment.observation());
        let rng = seed::generator(games.seed, Purpose::EvaluationActions, &[number]);
        Self { environment, stack, rng, score, end: None }
    }

    /// The state to act on.
    pub fn state(&self) -> &[u8] {
        self.stack.as_slice()
    }

    pub fn score(&self) -> f64 {
        self.score
    }

    /// Why the game has ended; `None` while it runs.
    pub fn end(&self) -> Option<GameEnd> {
        self.end
    }

    /// The current picture, for people.
    pub fn render(&mut self) -> envs::Image {
        self.environment.render()
    }

    /// Takes one agent step. True if the game has ended.
    pub fn act(&mut self, agent: &dyn Agent, behaviour: Behaviour, q: &[f64]) -> bool {
        let chosen = behaviour.choose(agent, q, &mut self.rng);
        self.take(chosen.action)
    }

    fn act_at_random(&mut self) -> bool {
        let actions = self.environment.spec().actions.len();
        let chosen = sample(&vec![1.0 / actions as f64; actions], &mut self.rng);
        self.take(chosen.action)
    }

    fn take(&mut self, action: usize) -> bool {
        let outcome = self.environment.step(action);
        self.score += f64::from(outcome.reward);
        self.stack.push(self.environment.observation());
        if outcome.truncated {
            self.end = Some(GameEnd::TimeLimit);
        } else if outcome.terminated {
            self.end = Some(GameEnd::Terminated);
        }
        outcome.done()
    }
}

/// Plays `episodes` games and returns their scores in order. `watch` receives the number of games that have ended.
pub fn play(
    player: PlayerKind<'_>,
    games: &EvaluationGames<'_>,
    episodes: usize,
    mut watch: impl FnMut(usize),
) -> Result<Vec<f64>, EnvError> {
    let next_group = AtomicUsize::new(0);
    let (send, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..games.threads.clamp(1, episodes.div_ceil(GROUP).max(1)) {
            let (mut player, send, next_group) = (Player::new(player), send.clone(), &next_group);
            scope.spawn(move || {
                let groups = std::iter::from_fn(|| Some(next_group.fetch_add(1, Ordering::Relaxed) * GROUP));
                for first in groups.take_while(|first| *first < episodes) {
                    let numbers = first..(first + GROUP).min(episodes);
                    let ended = |number, score| drop(send.send(Ok((number, score))));
                    if let Err(error) = play_group(&mut player, games, numbers, ended) {
                        // The others start no further games: there will be no scores.
                        next_group.store(episodes, Ordering::Relaxed);
                        drop(send.send(Err(error)));
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut scores = vec![f64::NAN; episodes];
        for (count, ended) in ended.into_iter().enumerate() {
            let (number, score): (usize, f64) = ended?;
            scores[number] = score;
            watch(count + 1);
        }
        Ok(scores)
    })
}

/// A player of one thread.
enum Player<'a> {
    Agent(&'a dyn Agent, Box<QNetwork>, Behaviour),
    Random,
    Constant(usize),
}

impl<'a> Player<'a> {
    fn new(kind: PlayerKind<'a>) -> Self {
        match kind {
            PlayerKind::Agent(agent, network, behaviour) => {
                Self::Agent(agent, Box::new(network.share()), behaviour)
            }
            PlayerKind::Random => Self::Random,
            PlayerKind::Constant(action) => Self::Constant(action),
        }
    }
}

/// Plays these games at the same time, until all have ended. `ended` receives the number and the score of each.
fn play_group(
    player: &mut Player<'_>,
    games: &EvaluationGames<'_>,
    numbers: Range<usize>,
    mut ended: impl FnMut(usize, f64),
) -> Result<(), EnvError> {
    let start = |number: usize| Ok((number, Game::start(games, number as u64)?));
    let mut playing = numbers.map(start).collect::<Result<Vec<_>, EnvError>>()?;
    let mut states = Vec::new();
    while !playing.is_empty() {
        let q = match player {
            Player::Agent(agent, network, _) => {
                states.clear();
                playing.iter().for_each(|(_, game)| states.extend_from_slice(game.state()));
                agent.q_rows(network, &states, playing.len())
            }
            _ => Vec::new(),
        };
        let actions = playing[0].1.environment.spec().actions.len();
        let mut index = 0;
        playing.retain_mut(|(number, game)| {
            let done = match player {
                Player::Agent(agent, _, behaviour) => {
                    game.act(*agent, *behaviour, &q[index * actions..(index + 1) * actions])
                }
                Player::Random => game.act_at_random(),
                Player::Constant(action) => game.take(*action),
            };
            index += 1;
            if done {
                ended(*number, game.score());
            }
            !done
        });
    }
    Ok(())
}
