//! A bound on recorded training episodes: a run has no more of them than agent steps.
//!
//! Every recorded episode is a line of a file and an event of another. A member can report any number of episodes, but
//! not have shards count agent steps beyond the allowance that the learner grants. So those bound the record.

/// Episodes that may be recorded beyond the agent steps counted: reports can arrive before the counts of the shards.
const AHEAD_MAX: u64 = 65_536;

/// The episodes that may still be recorded.
#[derive(Debug, Default)]
pub struct EpisodeBudget {
    /// Agent steps of the run when this process began to count.
    steps_before: u64,
    recorded: u64,
}

impl EpisodeBudget {
    /// The budget of a run that is at `agent_steps`.
    pub fn new(agent_steps: u64) -> Self {
        Self { steps_before: agent_steps, recorded: 0 }
    }

    /// How many of `count` more episodes may be recorded, now that the run is at `agent_steps`. Those are counted.
    pub fn admit(&mut self, count: usize, agent_steps: u64) -> usize {
        let most = agent_steps.saturating_sub(self.steps_before).saturating_add(AHEAD_MAX);
        let admitted = most.saturating_sub(self.recorded).min(count as u64);
        self.recorded += admitted;
        admitted as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_episodes_cannot_make_the_record_outgrow_the_run() {
        let mut budget = EpisodeBudget::new(1_000_000);
        let admitted: usize = (0..100_000).map(|_| budget.admit(256, 1_000_500)).sum();
        assert_eq!(admitted as u64, AHEAD_MAX + 500);
        assert_eq!(budget.admit(256, 1_000_510), 10, "more once the run moves on");
    }

    #[test]
    fn episodes_of_one_step_are_all_recorded() {
        let mut budget = EpisodeBudget::new(0);
        assert!((0..10_000).all(|turn| budget.admit(100, turn * 100) == 100));
    }
}
