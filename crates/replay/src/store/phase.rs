//! The position of a lane in its episode.

use crate::chunk::Taken;

/// The role of a step in its episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StepKind {
    Acts,
    Ends,
    Final,
}

impl StepKind {
    pub fn of(taken: Option<&Taken>) -> Self {
        match taken {
            None => StepKind::Final,
            Some(taken) if taken.ends_episode() => StepKind::Ends,
            Some(_) => StepKind::Acts,
        }
    }
}

/// The position of a lane after its last step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    /// The next step starts an episode.
    Between,
    /// The episode continues. The value is the distance of the last step from the first one, at most 255.
    Within(u8),
    /// The episode ended, and its final observation is next.
    Ending(u8),
    /// Chunks were lost, so any step may follow.
    Lost,
}

impl Phase {
    /// The phase after one more step and that step's distance from its episode's start, or `None`
    /// if such a step cannot follow.
    pub fn advance(self, starts_episode: bool, kind: StepKind) -> Option<(Phase, u8)> {
        let since_start = match (self, starts_episode, kind) {
            (Phase::Between | Phase::Lost, true, StepKind::Acts | StepKind::Ends) => 0,
            (Phase::Within(since), false, StepKind::Acts | StepKind::Ends) => since.saturating_add(1),
            (Phase::Ending(since), false, StepKind::Final) => since.saturating_add(1),
            (Phase::Lost, false, _) => u8::MAX,
            _ => return None,
        };
        let after = match kind {
            StepKind::Acts => Phase::Within(since_start),
            StepKind::Ends => Phase::Ending(since_start),
            StepKind::Final => Phase::Between,
        };
        Some((after, since_start))
    }

    pub fn to_bytes(self) -> (u8, u8) {
        match self {
            Phase::Between => (0, 0),
            Phase::Within(steps) => (1, steps),
            Phase::Ending(steps) => (2, steps),
            Phase::Lost => (3, 0),
        }
    }

    pub fn from_bytes(phase: u8, steps: u8) -> Option<Self> {
        match phase {
            0 => Some(Phase::Between),
            1 => Some(Phase::Within(steps)),
            2 => Some(Phase::Ending(steps)),
            3 => Some(Phase::Lost),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn episodes_are_start_steps_end_and_final_observation() {
        use StepKind::*;
        let follows = |phase: Phase, starts, kind| phase.advance(starts, kind);
        assert_eq!(follows(Phase::Between, true, Acts), Some((Phase::Within(0), 0)));
        assert_eq!(follows(Phase::Between, false, Acts), None);
        assert_eq!(follows(Phase::Between, true, Final), None);
        assert_eq!(follows(Phase::Within(3), false, Ends), Some((Phase::Ending(4), 4)));
        assert_eq!(follows(Phase::Within(3), true, Acts), None);
        assert_eq!(follows(Phase::Within(3), false, Final), None);
        assert_eq!(follows(Phase::Within(255), false, Acts), Some((Phase::Within(255), 255)));
        assert_eq!(follows(Phase::Ending(4), false, Final), Some((Phase::Between, 5)));
        assert_eq!(follows(Phase::Ending(4), true, Acts), None);
        assert_eq!(follows(Phase::Lost, false, Acts), Some((Phase::Within(255), 255)));
        assert_eq!(follows(Phase::Lost, false, Final), Some((Phase::Between, 255)));
        assert_eq!(follows(Phase::Lost, true, Ends), Some((Phase::Ending(0), 0)));
    }

    #[test]
    fn phases_survive_their_bytes() {
        for phase in [Phase::Between, Phase::Within(7), Phase::Ending(255), Phase::Lost] {
            let (kind, steps) = phase.to_bytes();
            assert_eq!(Phase::from_bytes(kind, steps), Some(phase));
        }
        assert_eq!(Phase::from_bytes(4, 0), None);
    }
}
