//! What the paper found. Random and human scores are those of [`stats::atari`].

use value::Strategy;

/// One of the paper's nine games.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PaperScores {
    /// Canonical name.
    pub game: &'static str,
    /// Scores at 40M frames in the order of [`Strategy::PAPER`], read off the authors' figure to within 2% of its axes.
    pub paper: [f64; 3],
}

/// Frames after which the paper compares.
pub const FRAMES: u64 = 40_000_000;

/// All nine, in the paper's order.
pub const NINE: [PaperScores; 9] = [
    reference("alien", [1286.0, 1360.0, 1421.0]),
    reference("battle_zone", [3674.0, 5973.0, 5858.0]),
    reference("boxing", [84.0, 77.0, 80.0]),
    reference("beam_rider", [4591.0, 5998.0, 6176.0]),
    reference("demon_attack", [5578.0, 5654.0, 5902.0]),
    reference("ms_pacman", [2144.0, 2000.0, 2263.0]),
    reference("qbert", [7426.0, 11897.0, 11781.0]),
    reference("seaquest", [3099.0, 2026.0, 3071.0]),
    reference("space_invaders", [916.0, 1012.0, 1026.0]),
];

/// Which strategy over which, and the mean gain in per cent that the paper's text gives for it; ReaPER is younger.
pub const PAIRS: [(Strategy, Strategy, Option<f64>); 5] = [
    (Strategy::VER, Strategy::UNIFORM, Some(18.0)),
    (Strategy::PER, Strategy::UNIFORM, Some(11.8)),
    (Strategy::VER, Strategy::PER, Some(8.47)),
    (Strategy::REAPER, Strategy::PER, None),
    (Strategy::VER, Strategy::REAPER, None),
];

const fn reference(game: &'static str, paper: [f64; 3]) -> PaperScores {
    PaperScores { game, paper }
}

impl PaperScores {
    /// What is known of a game; none if it is not one of the nine.
    pub fn of(game: &str) -> Option<&'static Self> {
        NINE.iter().find(|reference| reference.game == game)
    }

    /// The paper's score with a strategy, if it is one of the paper's.
    pub fn score(&self, strategy: Strategy) -> Option<f64> {
        Strategy::PAPER.iter().position(|&other| other == strategy).map(|place| self.paper[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_readings_give_gains_near_those_of_its_text() {
        let gain = |a: Strategy, b: Strategy| {
            let score = |game: PaperScores, strategy| game.score(strategy).unwrap();
            let gains = NINE.map(|game| 100.0 * (score(game, a) / score(game, b) - 1.0));
            (gains.iter().sum::<f64>() / 9.0, gains)
        };
        for ((a, b, text), expected) in PAIRS.into_iter().zip([20.1, 13.5, 8.8]) {
            assert!((gain(a, b).0 - expected).abs() < 0.05, "{a} over {b}: {}", gain(a, b).0);
            assert!((gain(a, b).0 - text.unwrap()).abs() < 2.2, "{a} over {b}");
        }
        let seaquest = gain(Strategy::VER, Strategy::PER).1[7] / 9.0;
        assert!((seaquest - 5.7).abs() < 0.05, "{seaquest}");
    }

    #[test]
    fn the_games_are_known_and_have_random_and_human_scores() {
        assert!(NINE.iter().all(|reference| envs::canonical(reference.game).unwrap() == reference.game));
        assert!(NINE.iter().all(|reference| stats::atari::Reference::of(reference.game).is_some()));
        assert!(PaperScores::of("pong").is_none());
    }
}
