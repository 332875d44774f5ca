//! What the learner and its members say to one another, as domain types: weights, orders, reports.

use bytes::Bytes;
use replay::WeightsVersion;

use crate::convert::{Invalid, version, version_message};
use crate::limits::{EPISODES_MAX, PLAYERS_MAX, SCORES_MAX};
use crate::v1;

/// Bytes of a player's name.
const NAME_BYTES_MAX: usize = 64;

/// Weights as they are published. A clone shares the bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// Which.
    pub version: WeightsVersion,
    /// A safetensors file.
    pub safetensors: Bytes,
    /// What an evaluator shall do with them.
    pub order: Option<Order>,
}

/// Games that the learner wants played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Unique in the run, and growing.
    pub number: u64,
    /// Frames behind the weights.
    pub frames: u64,
    /// Updates behind the weights.
    pub updates: u64,
    /// Games of each player.
    pub episodes: u32,
    /// Play the baselines as well.
    pub baselines: bool,
}

/// What a member tells the learner.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Training games that ended.
    Episodes(Vec<Episode>),
    /// An order was played.
    Evaluation {
        /// The order's number.
        number: u64,
        /// The agent first, then baselines.
        players: Vec<Player>,
    },
}

/// A training game that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Episode {
    /// Unclipped.
    pub score: f64,
    /// Decisions made.
    pub steps: u64,
    /// Cut short by the time limit.
    pub truncated: bool,
}

/// A player and its scores.
#[derive(Clone, Debug, PartialEq)]
pub struct Player {
    /// `agent`, `random`, `untrained` or `constant` and an action.
    pub name: String,
    /// Unclipped, in order.
    pub scores: Vec<f64>,
}

impl From<&Weights> for v1::Weights {
    fn from(weights: &Weights) -> Self {
        let order = |order: Order| v1::EvaluationOrder {
            number: order.number,
            frames: order.frames,
            updates: order.updates,
            episodes: order.episodes,
            baselines: order.baselines,
        };
        Self {
            version: Some(version_message(weights.version)),
            safetensors: weights.safetensors.clone(),
            evaluation: weights.order.map(order),
        }
    }
}

impl TryFrom<v1::Weights> for Weights {
    type Error = Invalid;

    fn try_from(weights: v1::Weights) -> Result<Self, Invalid> {
        let order = |order: v1::EvaluationOrder| Order {
            number: order.number,
            frames: order.frames,
            updates: order.updates,
            episodes: order.episodes,
            baselines: order.baselines,
        };
        Ok(Self {
            version: version(weights.version.ok_or(Invalid::Missing("version"))?),
            safetensors: weights.safetensors,
            order: weights.evaluation.map(order),
        })
    }
}

/// The reports in a message, checked: finite scores, short names, no more than there can be.
pub fn reports(
    episodes: Vec<v1::Episode>,
    evaluation: Option<v1::EvaluationReport>,
) -> Result<Vec<Report>, Invalid> {
    at_most("episodes", episodes.len(), EPISODES_MAX)?;
    let mut reports = Vec::new();
    if !episodes.is_empty() {
        let episode = |episode: v1::Episode| {
            let v1::Episode { score, steps, truncated } = episode;
            Ok(Episode { score: finite(score)?, steps, truncated })
        };
        reports.push(Report::Episodes(episodes.into_iter().map(episode).collect::<Result<_, Invalid>>()?));
    }
    if let Some(v1::EvaluationReport { number, players }) = evaluation {
        at_most("players", players.len(), PLAYERS_MAX)?;
        let players = players.into_iter().map(player).collect::<Result<_, _>>()?;
        reports.push(Report::Evaluation { number, players });
    }
    Ok(reports)
}

/// [`reports`] back, into a message that says who reports.
pub fn report_message(report: Report, member: v1::ReportRequest) -> v1::ReportRequest {
    match report {
        Report::Episodes(episodes) => {
            let episode = |Episode { score, steps, truncated }| v1::Episode { score, steps, truncated };
            v1::ReportRequest { episodes: episodes.into_iter().map(episode).collect(), ..member }
        }
        Report::Evaluation { number, players } => {
            let player = |Player { name, scores }| v1::PlayerScores { player: name, scores };
            let players = players.into_iter().map(player).collect();
            v1::ReportRequest { evaluation: Some(v1::EvaluationReport { number, players }), ..member }
        }
    }
}

fn player(player: v1::PlayerScores) -> Result<Player, Invalid> {
    at_most("bytes of a player's name", player.player.len(), NAME_BYTES_MAX)?;
    at_most("scores", player.scores.len(), SCORES_MAX)?;
    if player.scores.is_empty() {
        return Err(Invalid::Missing("scores"));
    }
    player.scores.iter().try_for_each(|score| finite(*score).map(drop))?;
    Ok(Player { name: player.player, scores: player.scores })
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), Invalid> {
    if count > most { Err(Invalid::range(what, count, format!("at most {most}"))) } else { Ok(()) }
}

fn finite(score: f64) -> Result<f64, Invalid> {
    if score.is_finite() { Ok(score) } else { Err(Invalid::range("score", score, "finite")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_and_reports_come_back_as_they_went() {
        let order = Order { number: 5, frames: 40, updates: 10, episodes: 8, baselines: true };
        let version = WeightsVersion { incarnation: 2, number: 10 };
        let weights = Weights { version, safetensors: Bytes::from_static(b"w"), order: Some(order) };
        assert_eq!(Weights::try_from(v1::Weights::from(&weights)), Ok(weights));
        let agent = Player { name: "agent".into(), scores: vec![1.0, -2.0] };
        let played = Report::Evaluation { number: 5, players: vec![agent] };
        let games = Report::Episodes(vec![Episode { score: 3.0, steps: 7, truncated: true }]);
        let message =
            report_message(games.clone(), report_message(played.clone(), v1::ReportRequest::default()));
        assert_eq!(reports(message.episodes, message.evaluation), Ok(vec![games, played]));
    }

    #[test]
    fn what_can_not_be_reported_is_named() {
        let refused = |scores: Vec<f64>, name: &str| {
            let players = vec![v1::PlayerScores { player: name.into(), scores }];
            reports(Vec::new(), Some(v1::EvaluationReport { number: 1, players })).unwrap_err().to_string()
        };
        assert_eq!(refused(vec![f64::NAN], "agent"), "score is NaN, must be finite");
        assert_eq!(refused(Vec::new(), "agent"), "scores is missing");
        assert!(refused(vec![1.0], &"x".repeat(65)).contains("at most 64"));
        let many = vec![v1::Episode::default(); EPISODES_MAX + 1];
        assert!(reports(many, None).unwrap_err().to_string().contains("4097"));
    }
}
