//! Domain types of what members report to the learner: training games and evaluations.

use crate::convert::Invalid;
use crate::limits::{EPISODES_MAX, PLAYERS_MAX, SCORE_MAX, SCORES_MAX};
use crate::v1;

/// Bytes of a player's name.
const NAME_BYTES_MAX: usize = 64;

/// What a member reports to the learner.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// Training games that ended.
    Episodes(Vec<EpisodeReport>),
    /// The results of an evaluation request.
    Evaluation {
        /// The number of the request.
        number: u64,
        /// The agent first, then baselines.
        players: Vec<PlayerScores>,
    },
}

/// The result of a training game.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeReport {
    /// Unclipped.
    pub score: f64,
    pub steps: u64,
    /// Ended by the time limit.
    pub truncated: bool,
}

/// A player and its scores.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayerScores {
    /// `agent`, `random`, `untrained` or `constant` and an action.
    pub name: String,
    /// Unclipped, in the order of play.
    pub scores: Vec<f64>,
}

/// Converts the reports of a message. Scores must be at most [`SCORE_MAX`] in magnitude, an episode must have a step, names
/// must be short, and the lists within their limits.
pub fn reports(
    episodes: Vec<v1::Episode>,
    evaluation: Option<v1::EvaluationReport>,
) -> Result<Vec<Report>, Invalid> {
    at_most("episodes", episodes.len(), EPISODES_MAX)?;
    let mut reports = Vec::new();
    if !episodes.is_empty() {
        let episode = |episode: v1::Episode| {
            let v1::Episode { score, steps, truncated } = episode;
            if steps == 0 {
                return Err(Invalid::range("steps", steps, "at least 1"));
            }
            Ok(EpisodeReport { score: bounded(score)?, steps, truncated })
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

/// The inverse of [`reports`]. `member` carries the fields that identify the member. A score beyond [`SCORE_MAX`] is sent as
/// this bound: a refused report would be lost, and an evaluation that is never reported keeps a run from its end.
pub fn report_message(report: Report, member: v1::ReportRequest) -> v1::ReportRequest {
    match report {
        Report::Episodes(episodes) => {
            let episode = |EpisodeReport { score, steps, truncated }| v1::Episode {
                score: clamped(score),
                steps,
                truncated,
            };
            v1::ReportRequest { episodes: episodes.into_iter().map(episode).collect(), ..member }
        }
        Report::Evaluation { number, players } => {
            let player = |PlayerScores { name, scores }| v1::PlayerScores {
                player: name,
                scores: scores.into_iter().map(clamped).collect(),
            };
            let players = players.into_iter().map(player).collect();
            v1::ReportRequest { evaluation: Some(v1::EvaluationReport { number, players }), ..member }
        }
    }
}

fn player(player: v1::PlayerScores) -> Result<PlayerScores, Invalid> {
    at_most("bytes of a player's name", player.player.len(), NAME_BYTES_MAX)?;
    at_most("scores", player.scores.len(), SCORES_MAX)?;
    if player.scores.is_empty() {
        return Err(Invalid::Missing("scores"));
    }
    player.scores.iter().try_for_each(|score| bounded(*score).map(drop))?;
    Ok(PlayerScores { name: player.player, scores: player.scores })
}

fn at_most(what: &'static str, count: usize, most: usize) -> Result<(), Invalid> {
    if count > most { Err(Invalid::range(what, count, format!("at most {most}"))) } else { Ok(()) }
}

/// A score within its bound; NaN is not.
fn bounded(score: f64) -> Result<f64, Invalid> {
    if score.abs() <= SCORE_MAX {
        return Ok(score);
    }
    Err(Invalid::range("score", score, format!("from -{SCORE_MAX:e} to {SCORE_MAX:e}")))
}

fn clamped(score: f64) -> f64 {
    score.clamp(-SCORE_MAX, SCORE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_round_trip() {
        let agent = PlayerScores { name: "agent".into(), scores: vec![1.0, -2.0] };
        let played = Report::Evaluation { number: 5, players: vec![agent] };
        let games = Report::Episodes(vec![EpisodeReport { score: 3.0, steps: 7, truncated: true }]);
        let message =
            report_message(games.clone(), report_message(played.clone(), v1::ReportRequest::default()));
        assert_eq!(reports(message.episodes, message.evaluation), Ok(vec![games, played]));
    }

    #[test]
    fn an_invalid_report_is_refused_with_the_wrong_field() {
        let refused = |scores: Vec<f64>, name: &str| {
            let players = vec![v1::PlayerScores { player: name.into(), scores }];
            reports(Vec::new(), Some(v1::EvaluationReport { number: 1, players })).unwrap_err().to_string()
        };
        assert_eq!(refused(vec![f64::NAN], "agent"), "score is NaN, must be from -1e15 to 1e15");
        assert_eq!(refused(Vec::new(), "agent"), "scores is missing");
        assert!(refused(vec![1.0], &"x".repeat(65)).contains("at most 64"));
        let many = vec![v1::Episode::default(); EPISODES_MAX + 1];
        assert!(reports(many, None).unwrap_err().to_string().contains("257"));
        let none = vec![v1::Episode::default()];
        assert_eq!(reports(none, None).unwrap_err().to_string(), "steps is 0, must be at least 1");
    }

    #[test]
    fn a_score_beyond_the_bound_is_refused_and_never_sent() {
        let episodes = |score| vec![v1::Episode { score, steps: 1, truncated: false }];
        for score in [1.7e308, -1.7e308, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, SCORE_MAX * 1.001] {
            assert!(reports(episodes(score), None).is_err(), "{score}");
        }
        let sent = |score| {
            let games = Report::Episodes(vec![EpisodeReport { score, steps: 1, truncated: false }]);
            let agent = PlayerScores { name: "agent".into(), scores: vec![score] };
            let played = Report::Evaluation { number: 5, players: vec![agent] };
            let message = report_message(played, report_message(games, v1::ReportRequest::default()));
            reports(message.episodes, message.evaluation).is_ok()
        };
        assert!(sent(1.7e308) && sent(f64::NEG_INFINITY) && sent(SCORE_MAX));
    }
}
