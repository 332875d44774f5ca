//! Validation of settings. Every error names the setting and the remedy.

use value::Listed;

use crate::Settings;
use crate::algorithms;
use crate::choices::{EpsilonSchedule, NStepEntropy, PressFire};
use crate::networks::{self, NetworkInput};
use crate::text::Text;

/// Minimum bytes that a transition takes of `replay_bytes`: 32 for its step and 32 for its item, without frames.
const ITEM_BYTES_MIN: u64 = 64;

/// Maximum of `publish_every_seconds`: a longer period is rather a mistaken unit.
const PUBLISH_SECONDS_MAX: f64 = 3600.0;

impl Settings {
    /// Checks ranges, combinations of settings, and the game's constraints. Returns the first error.
    pub fn validate(&self, game: &str) -> Result<(), String> {
        self.check_numbers()?;
        self.check_replay()?;
        let check_mode = if self.lockstep { Self::check_lockstep } else { Self::check_cluster };
        check_mode(self)?;
        self.check_algorithm()?;
        let environment = envs::find(game).map_err(|error| error.to_string())?;
        self.check_environment(environment)?;
        self.check_network(environment)
    }

    fn check_numbers(&self) -> Result<(), String> {
        let above_zero = [
            ("temperature", self.temperature),
            ("learning_rate", self.learning_rate),
            ("adam_epsilon", self.adam_epsilon),
            ("first_priority", self.first_priority),
            ("samples_per_insert", self.samples_per_insert.0.unwrap_or(1.0)),
        ];
        for (key, number) in above_zero {
            require(number.is_finite() && number > 0.0, || {
                format!("{key} must be a number above 0, got {number}")
            })?;
        }
        let shares = [
            ("discount", self.discount),
            ("learning_rate_decay", self.learning_rate_decay),
            ("sticky_actions", self.sticky_actions),
            ("epsilon", self.epsilon),
            ("epsilon_final", self.epsilon_final),
            ("priority_exponent", self.priority_exponent),
            ("importance_exponent", self.importance_exponent),
            ("importance_exponent_final", self.importance_exponent_final),
        ];
        for (key, number) in shares {
            require((0.0..=1.0).contains(&number), || {
                format!("{key} must be between 0 and 1, got {number}")
            })?;
        }
        for (key, number) in
            [("priority_constant", self.priority_constant), ("gradient_clamp", self.gradient_clamp)]
        {
            require(number.is_finite() && number >= 0.0, || {
                format!("{key} must be a number of at least 0, got {number}")
            })?;
        }
        if let Some(reward) = self.termination_reward.0 {
            require(reward.is_finite(), || {
                format!("termination_reward must be a finite number or none, got {reward}")
            })?;
        }
        self.check_epsilon()?;
        self.check_lives()?;
        self.check_publishing()?;
        require(self.sticky_actions < 1.0, || {
            "sticky_actions must be below 1: at 1 the agent's actions are never executed".into()
        })?;
        let counts = [
            ("frames", self.frames.0, u64::MAX),
            ("torch_threads", self.torch_threads as u64, 1024),
            ("actors", self.actors.into(), 4096),
            ("lanes", self.lanes.into(), 4096),
            ("shards", self.shards.into(), 256),
            ("prefetch_batches", self.prefetch_batches as u64, 1024),
            ("chunk_steps", self.chunk_steps.into(), 512),
            ("checkpoint_every_frames", self.checkpoint_every_frames.0, u64::MAX),
            ("checkpoints_kept", self.checkpoints_kept.into(), 1_000_000),
            ("evaluate_every_frames", self.evaluate_every_frames.0, u64::MAX),
            ("evaluate_episodes", self.evaluate_episodes.into(), 100_000),
            ("evaluate_final_episodes", self.evaluate_final_episodes.into(), 100_000),
            ("frame_skip", self.frame_skip.into(), 1_000),
            ("time_limit_frames", self.time_limit_frames.into(), u64::MAX),
            ("frame_stack", self.frame_stack as u64, 16),
            ("hidden_units", self.hidden_units as u64, 65_536),
            ("batch_size", self.batch_size as u64, 16_384),
            ("n_step", self.n_step.into(), 100),
            ("target_period_updates", self.target_period_updates.0, u64::MAX),
            ("capacity", self.capacity.0, u32::MAX.into()),
            ("replay_bytes", self.replay_bytes.0, 1 << 46),
        ];
        for (key, count, most) in counts {
            require(count >= 1, || format!("{key} must be at least 1"))?;
            require(count <= most, || format!("{key} must be at most {most}, got {count}"))?;
        }
        require(self.noop_max <= 10_000, || format!("noop_max must be at most 10000, got {}", self.noop_max))
    }

    /// A factor leads from one ε to another only if both are above 0; two equal ones need none.
    fn check_epsilon(&self) -> Result<(), String> {
        let (first, last) = (self.epsilon, self.epsilon_final);
        let is_geometric = self.epsilon_schedule == EpsilonSchedule::Geometric;
        require(!is_geometric || first == last || first.min(last) > 0.0, || {
            format!(
                "epsilon_schedule geometric can't lead from {first} to {last}, because no factor does: raise epsilon or \
                 epsilon_final above 0, or use --epsilon-schedule linear"
            )
        })
    }

    /// Without publications the actors would play with the weights of the learner's start.
    fn check_publishing(&self) -> Result<(), String> {
        let seconds = self.publish_every_seconds;
        require((0.0..=PUBLISH_SECONDS_MAX).contains(&seconds), || {
            format!("publish_every_seconds must be between 0 and {PUBLISH_SECONDS_MAX}, got {seconds}")
        })?;
        require(self.publish_every_updates.0 > 0 || seconds > 0.0, || {
            "publish_every_updates and publish_every_seconds are both 0, so actors would never get new weights: set one of \
             them, such as --publish-every-seconds 1"
                .into()
        })
    }

    /// A lost life can start the frame stack again only where it ends the transitions that lead to it, and FIRE is not pressed
    /// in the middle of a stack, where the replay would miss frames.
    fn check_lives(&self) -> Result<(), String> {
        require(!self.life_loss_refills || self.life_loss_ends, || {
            "life_loss_refills starts the frame stack again after a lost life, which then must end a transition: set \
             life_loss_ends = true, or life_loss_refills = false"
                .into()
        })?;
        require(self.press_fire != PressFire::Lives || self.life_loss_refills, || {
            "press_fire lives plays steps that are not recorded, which a frame stack must not span: set life_loss_refills = \
             true, or press_fire = games"
                .into()
        })
    }

    fn check_replay(&self) -> Result<(), String> {
        let (batch, min_size, capacity) = (self.batch_size as u64, self.min_size.0, self.capacity.0);
        require(batch <= capacity, || {
            format!(
                "batch_size {batch} is larger than the replay's capacity {capacity}: raise capacity or lower batch_size"
            )
        })?;
        require(batch <= min_size, || {
            format!(
                "batch_size {batch} is larger than min_size {min_size}: raise min_size or lower batch_size"
            )
        })?;
        let steps = self.frames.0 / u64::from(self.frame_skip);
        require(steps > min_size, || {
            format!(
                "the run ends after {steps} agent steps, before the replay reaches min_size {min_size}, so the agent would learn nothing: raise frames"
            )
        })?;
        require(min_size <= capacity, || {
            format!(
                "min_size {min_size} is larger than capacity {capacity}, so training would never start: lower min_size"
            )
        })?;
        let (room, bytes) = (self.replay_bytes.0 / ITEM_BYTES_MIN, self.replay_bytes.show());
        require(min_size <= room, || {
            format!(
                "replay_bytes {bytes} can't hold more than {room} transitions, so min_size {min_size} is never reached: \
                 raise replay_bytes or lower min_size"
            )
        })
    }

    fn check_lockstep(&self) -> Result<(), String> {
        require(self.samples_per_insert.0.is_some(), || {
            "samples_per_insert none decouples actors and learner, but lockstep has one thread of control: \
             give a number, such as --samples-per-insert 8, or leave out --lockstep"
                .into()
        })
    }

    /// Checks that the shards can reach `min_size`: a lane writes to one shard, and a shard holds its share of the capacity.
    fn check_cluster(&self) -> Result<(), String> {
        let shards = u64::from(self.shards);
        let lanes = u64::from(self.actors) * u64::from(self.lanes);
        let (share, filled) = (self.capacity.0 / shards, shards.min(lanes));
        let (room, min_size) = (share * filled, self.min_size.0);
        require(min_size <= room, || {
            let (capacity, each) = (self.capacity.0, format!("{share} transitions each"));
            if filled < shards {
                format!(
                    "actors times lanes is {lanes}, which fills only {filled} of {shards} shards of {each}, so min_size \
                     {min_size} is never reached: raise lanes or actors, or lower shards or min_size"
                )
            } else {
                format!(
                    "capacity {capacity} over {shards} shards is {each}, {room} in all, so min_size {min_size} is \
                     never reached: raise capacity or lower min_size"
                )
            }
        })
    }

    fn check_algorithm(&self) -> Result<(), String> {
        let (algorithm, strategy) = (self.algorithm, self.strategy);
        require(algorithm.accepts(strategy), || {
            let accepted = algorithms::AlgorithmEntry::list().iter().filter(|other| other.accepts(strategy));
            let others = either(accepted.map(|other| other.name));
            format!(
                "strategy {strategy} needs a soft policy and is not defined for algorithm {algorithm}: use --strategy per, \
                 or --algorithm {others}"
            )
        })?;
        require(algorithm.has_soft_policy || self.n_step_entropy == NStepEntropy::Behaviour, || {
            let soft = algorithms::AlgorithmEntry::list().iter().filter(|other| other.has_soft_policy);
            format!(
                "n_step_entropy target needs a soft policy and is not defined for algorithm {algorithm}: leave it out, or use \
                 --algorithm {}",
                either(soft.map(|other| other.name))
            )
        })?;
        let floor = self.n_step_entropy_floor;
        require(floor.is_finite() && floor <= 0.0, || {
            format!("n_step_entropy_floor must be a number of at most 0, got {floor}")
        })?;
        // Check the settings of all algorithms: a NaN can't be sent to an actor, even in an unused setting.
        algorithms::AlgorithmEntry::list().iter().try_for_each(|algorithm| (algorithm.check)(self))
    }

    /// Refuses a setting that the environment would ignore, and lockstep if the environment can't save its state.
    fn check_environment(&self, environment: &envs::EnvEntry) -> Result<(), String> {
        let game = environment.name;
        for (key, always) in environment.fixed_settings {
            let given = self.get(key).unwrap_or_default();
            require(given == *always, || {
                format!("{key} is always {always} in {game}, got {given}: leave it out")
            })?;
        }
        require(environment.saves_state || !self.lockstep, || {
            format!(
                "a lockstep checkpoint contains every environment, but {game} can't save its state: leave out --lockstep"
            )
        })
    }

    fn check_network(&self, environment: &envs::EnvEntry) -> Result<(), String> {
        let input = NetworkInput::of(&environment.observation, self.frame_stack)
            .map_err(|error| error.to_string())?;
        self.network.check(input).map_err(|mismatch| {
            let accepting =
                networks::NetworkEntry::list().iter().filter(|network| network.check(input).is_ok());
            let remedy = match either(accepting.map(|network| network.name)) {
                others if others.is_empty() => "no network accepts this input".to_owned(),
                others => format!("use --network {others}"),
            };
            format!("{mismatch} in {}: {remedy}", environment.name)
        })
    }
}

/// "a", "a or b", "a, b or c".
fn either(names: impl Iterator<Item = &'static str>) -> String {
    let names: Vec<_> = names.collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

fn require(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(game: &str, key: &str, text: &str) -> String {
        let mut settings = Settings::paper();
        settings.set(key, text).unwrap().unwrap();
        settings.validate(game).expect_err(&format!("{key} = {text}"))
    }

    #[test]
    fn numbers_out_of_range_are_refused_by_name() {
        for (key, text) in [
            ("temperature", "0"),
            ("temperature", "-1"),
            ("temperature", "NaN"),
            ("temperature", "inf"),
            ("discount", "1.5"),
            ("batch_size", "0"),
            ("n_step", "0"),
            ("lanes", "0"),
            ("sticky_actions", "1"),
            ("samples_per_insert", "0"),
            ("learning_rate", "NaN"),
            ("termination_reward", "NaN"),
            ("termination_reward", "-inf"),
            ("n_step_entropy_floor", "0.1"),
            ("n_step_entropy_floor", "-inf"),
            ("n_step_entropy_floor", "NaN"),
        ] {
            assert!(refused("pong", key, text).contains(key), "{key} = {text}");
        }
    }

    #[test]
    fn contradictory_settings_are_refused_with_a_remedy() {
        assert!(refused("pong", "algorithm", "dqn").contains("--strategy per"));
        assert!(refused("pong", "capacity", "1000").contains("lower min_size"));
        assert!(refused("pong", "capacity", "16").contains("batch_size"));
        assert!(refused("pong", "min_size", "8").contains("batch_size"));
        assert!(refused("pong", "replay_bytes", "3MB").contains("46875 transitions"));
        assert!(refused("pong", "network", "mlp").contains("--network"));
        assert!(refused("pong", "min_size", "1000001").contains("lower min_size"));
        let cartpole = |key: &str, text: &str| {
            let mut settings = crate::presets::find("cartpole").unwrap().settings();
            settings.set(key, text).unwrap().unwrap();
            settings.validate("cartpole").unwrap_err()
        };
        assert!(cartpole("network", "small").contains("--network mlp"));
        assert!(cartpole("sticky_actions", "0.25").contains("leave it out"));
        assert!(cartpole("time_limit_frames", "500").contains("always 200"));
        assert!(refused("pong", "difficulty_ramping", "false").contains("always true in pong"));
        let mut minatar = crate::presets::find("minatar").unwrap().settings();
        minatar.difficulty_ramping = false;
        assert_eq!(minatar.validate("minatar_asterix"), Ok(()));
    }

    #[test]
    fn what_a_lost_life_does_is_consistent() {
        let mut settings = Settings::paper();
        settings.press_fire = PressFire::Lives;
        assert!(settings.validate("pong").unwrap_err().contains("press_fire = games"));
        settings.life_loss_refills = true;
        assert_eq!(settings.validate("pong"), Ok(()));
        settings.life_loss_ends = false;
        assert!(settings.validate("pong").unwrap_err().contains("life_loss_ends = true"));
        settings.life_loss_refills = false;
        settings.press_fire = PressFire::Games;
        assert_eq!(settings.validate("pong"), Ok(()));
    }

    #[test]
    fn only_atari_has_a_screen_fire_and_a_stack_that_a_lost_life_refills() {
        for game in ["cartpole", "minatar_breakout", "minatar_seaquest"] {
            let preset = crate::presets::find(envs::find(game).unwrap().default_preset).unwrap();
            for (key, text) in
                [("frame_maximum", "gray"), ("press_fire", "games"), ("life_loss_refills", "true")]
            {
                let mut settings = preset.settings();
                settings.life_loss_ends = true;
                settings.set(key, text).unwrap().unwrap();
                let error = settings.validate(game).unwrap_err();
                assert!(error.contains(key) && error.contains("leave it out"), "{game}: {error}");
            }
        }
    }

    #[test]
    fn entropies_of_the_target_need_a_soft_policy() {
        let mut settings = Settings { n_step: 3, strategy: value::Strategy::PER, ..Settings::paper() };
        settings.set("n_step_entropy", "target").unwrap().unwrap();
        for (algorithm, accepted) in
            [(algorithms::SOFT_DQN, true), (algorithms::MUNCHAUSEN_DQN, true), (algorithms::DQN, false)]
        {
            settings.algorithm = algorithm;
            let result = settings.validate("pong");
            assert_eq!(result.is_ok(), accepted, "{algorithm}");
            if let Err(error) = result {
                assert!(error.contains("n_step_entropy target needs a soft policy"), "{error}");
                assert!(error.ends_with("--algorithm soft-dqn or munchausen-dqn"), "{error}");
            }
        }
    }

    #[test]
    fn a_geometric_epsilon_neither_starts_nor_ends_at_zero() {
        let mut settings = Settings::paper();
        settings.epsilon_schedule = EpsilonSchedule::Geometric;
        let mut check = |first, last| {
            (settings.epsilon, settings.epsilon_final) = (first, last);
            settings.validate("pong")
        };
        assert_eq!([check(1.0, 0.01), check(0.0, 0.0), check(0.1, 0.1)], [Ok(()), Ok(()), Ok(())]);
        for (first, last) in [(1.0, 0.0), (0.0, 0.1)] {
            assert!(check(first, last).unwrap_err().contains("--epsilon-schedule linear"));
        }
    }

    #[test]
    fn weights_are_published_by_updates_or_by_time() {
        let mut settings = Settings::paper();
        let mut check = |updates, seconds| {
            (settings.publish_every_updates.0, settings.publish_every_seconds) = (updates, seconds);
            settings.validate("pong")
        };
        assert_eq!([check(0, 1.0), check(25, 0.0), check(1, 3600.0)], [Ok(()), Ok(()), Ok(())]);
        assert!(check(0, 0.0).unwrap_err().ends_with("set one of them, such as --publish-every-seconds 1"));
        for seconds in [-1.0, 3601.0, f64::NAN, f64::INFINITY] {
            let error = check(25, seconds).unwrap_err();
            assert!(error.starts_with("publish_every_seconds must be between 0 and 3600"), "{error}");
        }
    }

    #[test]
    fn lockstep_needs_a_samples_per_insert_ratio() {
        let mut settings = Settings::paper();
        settings.set("samples_per_insert", "none").unwrap().unwrap();
        assert_eq!(settings.validate("pong"), Ok(()));
        settings.lockstep = true;
        assert!(settings.validate("pong").unwrap_err().contains("--samples-per-insert 8"));
    }

    #[test]
    fn a_shard_without_a_lane_adds_no_capacity() {
        let mut settings = Settings::paper();
        (settings.shards, settings.actors, settings.lanes) = (8, 1, 2);
        settings.min_size.0 = 250_000;
        assert_eq!(settings.validate("pong"), Ok(()), "two shards of 125,000");
        settings.min_size.0 += 1;
        let error = settings.validate("pong").unwrap_err();
        assert!(error.contains("2, which fills only 2 of 8 shards of 125000"), "{error}");
        assert!(error.ends_with("raise lanes or actors, or lower shards or min_size"), "{error}");
        settings.lanes = 8;
        assert_eq!(settings.validate("pong"), Ok(()));
        settings.capacity.0 = 250_007;
        assert!(settings.validate("pong").unwrap_err().contains("250000 in all"));
        settings.lockstep = true;
        assert_eq!(settings.validate("pong"), Ok(()), "lockstep has one replay");
    }
}
