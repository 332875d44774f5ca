//! The scores of random players and of people on the 57 Atari games of the literature.
//!
//! Measured by Mnih et al. (2015) and, for the games that they do not have, by Wang et al. (2016), with up to 30 no-op
//! actions at the start; Dopamine, DQN Zoo and rliable use the same numbers. Against random play with other rules (sticky
//! actions, another time limit) they are an approximation, so they serve to compare algorithms and not as a fact on people.

/// A game, and the scores that are 0 and 1 on the human-normalised scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// Canonical name.
    pub game: &'static str,
    /// Score of a player that acts at random.
    pub random: f64,
    /// Score of a professional tester.
    pub human: f64,
}

impl Reference {
    /// The reference of a game; none if it is not one of the 57.
    pub fn of(game: &str) -> Option<&'static Self> {
        REFERENCES.iter().find(|reference| reference.game == game)
    }

    /// 0 for a random player, 1 for a person.
    pub fn normalised(&self, score: f64) -> f64 {
        (score - self.random) / (self.human - self.random)
    }
}

const fn reference(game: &'static str, random: f64, human: f64) -> Reference {
    Reference { game, random, human }
}

/// All games, sorted.
pub const REFERENCES: [Reference; 57] = [
    reference("alien", 227.8, 7127.7),
    reference("amidar", 5.8, 1719.5),
    reference("assault", 222.4, 742.0),
    reference("asterix", 210.0, 8503.3),
    reference("asteroids", 719.1, 47388.7),
    reference("atlantis", 12850.0, 29028.1),
    reference("bank_heist", 14.2, 753.1),
    reference("battle_zone", 2360.0, 37187.5),
    reference("beam_rider", 363.9, 16926.5),
    reference("berzerk", 123.7, 2630.4),
    reference("bowling", 23.1, 160.7),
    reference("boxing", 0.1, 12.1),
    reference("breakout", 1.7, 30.5),
    reference("centipede", 2090.9, 12017.0),
    reference("chopper_command", 811.0, 7387.8),
    reference("crazy_climber", 10780.5, 35829.4),
    reference("defender", 2874.5, 18688.9),
    reference("demon_attack", 152.1, 1971.0),
    reference("double_dunk", -18.6, -16.4),
    reference("enduro", 0.0, 860.5),
    reference("fishing_derby", -91.7, -38.7),
    reference("freeway", 0.0, 29.6),
    reference("frostbite", 65.2, 4334.7),
    reference("gopher", 257.6, 2412.5),
    reference("gravitar", 173.0, 3351.4),
    reference("hero", 1027.0, 30826.4),
    reference("ice_hockey", -11.2, 0.9),
    reference("jamesbond", 29.0, 302.8),
    reference("kangaroo", 52.0, 3035.0),
    reference("krull", 1598.0, 2665.5),
    reference("kung_fu_master", 258.5, 22736.3),
    reference("montezuma_revenge", 0.0, 4753.3),
    reference("ms_pacman", 307.3, 6951.6),
    reference("name_this_game", 2292.3, 8049.0),
    reference("phoenix", 761.4, 7242.6),
    reference("pitfall", -229.4, 6463.7),
    reference("pong", -20.7, 14.6),
    reference("private_eye", 24.9, 69571.3),
    reference("qbert", 163.9, 13455.0),
    reference("riverraid", 1338.5, 17118.0),
    reference("road_runner", 11.5, 7845.0),
    reference("robotank", 2.2, 11.9),
    reference("seaquest", 68.4, 42054.7),
    reference("skiing", -17098.1, -4336.9),
    reference("solaris", 1236.3, 12326.7),
    reference("space_invaders", 148.0, 1668.7),
    reference("star_gunner", 664.0, 10250.0),
    reference("surround", -10.0, 6.5),
    reference("tennis", -23.8, -8.3),
    reference("time_pilot", 3568.0, 5229.2),
    reference("tutankham", 11.4, 167.6),
    reference("up_n_down", 533.4, 11693.2),
    reference("venture", 0.0, 1187.5),
    reference("video_pinball", 16256.9, 17667.9),
    reference("wizard_of_wor", 563.5, 4756.5),
    reference("yars_revenge", 3092.9, 54576.9),
    reference("zaxxon", 32.5, 9173.3),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_play_is_zero_and_a_person_is_one() {
        for reference in REFERENCES {
            assert_eq!(reference.normalised(reference.random), 0.0, "{}", reference.game);
            assert_eq!(reference.normalised(reference.human), 1.0, "{}", reference.game);
        }
        assert!(Reference::of("cartpole").is_none());
    }

    #[test]
    fn every_game_is_known_under_its_canonical_name() {
        for reference in REFERENCES {
            assert_eq!(envs::canonical(reference.game).unwrap(), reference.game);
        }
        assert!(REFERENCES.is_sorted_by(|one, other| one.game < other.game));
    }
}
