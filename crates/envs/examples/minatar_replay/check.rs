//! Plays a recorded MinAtar game and compares it with the record.

use envs::minatar_replay::RecordedGame;
use sha2::{Digest, Sha256};

use super::fixture::Fixture;

/// Hexadecimal digits of a printed hash.
const DIGITS: usize = 16;

/// What a replay found, apart from differences.
#[derive(Debug, Default, PartialEq)]
pub struct Totals {
    pub steps: usize,
    pub episodes_ended: usize,
    pub reward_sum: f64,
    /// Steps whose hash the record has, all equal.
    pub compared: usize,
}

/// Plays all steps and hands the hash of each to `print`. An error names the first step that differs from the record, and
/// the step at which the replay could not continue.
pub fn replay(
    fixture: &Fixture,
    print: &mut dyn FnMut(&str) -> Result<(), String>,
) -> Result<Totals, String> {
    let mut first = None;
    match play(fixture, print, &mut first) {
        Ok(totals) => first.map_or(Ok(totals), Err),
        Err(later) => Err(first.map_or(later.clone(), |first| format!("{first}; then {later}"))),
    }
}

/// As [`replay`], with the first difference in `first`.
fn play(
    fixture: &Fixture,
    print: &mut dyn FnMut(&str) -> Result<(), String>,
    first: &mut Option<String>,
) -> Result<Totals, String> {
    let Fixture { game, sticky_action_prob, difficulty_ramping, draws, .. } = fixture;
    let replay = RecordedGame::new(game, *sticky_action_prob, *difficulty_ramping, draws.0.clone());
    let mut replay = replay.ok_or_else(|| format!("unknown game \"{game}\""))?;
    let (mut totals, mut all) = (Totals::default(), Sha256::new());
    replay.reset().map_err(|error| format!("reset before step 1: {error}"))?;
    let start = observed(&replay, 0.0, false);
    all.update(&start);
    compare("start", fixture.start.as_deref(), &hex(&Sha256::digest(&start)), first);
    for (index, action) in fixture.actions.0.iter().enumerate() {
        let step = index + 1;
        let (reward, terminal) =
            replay.step(usize::from(*action)).map_err(|error| format!("step {step}: {error}"))?;
        let bytes = observed(&replay, reward, terminal);
        all.update(&bytes);
        let hash = hex(&Sha256::digest(&bytes));
        print(&hash[..DIGITS])?;
        compare(&format!("step {step}"), fixture.hash(index), &hash, first);
        totals.compared += usize::from(fixture.hash(index).is_some());
        totals.steps += 1;
        totals.reward_sum += reward;
        if terminal {
            totals.episodes_ended += 1;
            replay.reset().map_err(|error| format!("reset after step {step}: {error}"))?;
        }
    }
    replay.finish().map_err(|error| format!("after step {}: {error}", totals.steps))?;
    compare("digest", fixture.digest.as_deref(), &hex(&all.finalize()), first);
    let ended = fixture.episodes_ended.filter(|stated| *stated != totals.episodes_ended);
    if let Some(stated) = ended {
        let message = format!("{} episodes ended, but the file says {stated}", totals.episodes_ended);
        first.get_or_insert(message);
    }
    if let Some(stated) = fixture.reward_sum.filter(|stated| *stated != totals.reward_sum) {
        first.get_or_insert(format!(
            "the rewards add up to {}, but the file says {stated}",
            totals.reward_sum
        ));
    }
    Ok(totals)
}

/// Notes the first difference between a hash and its recorded prefix.
fn compare(what: &str, recorded: Option<&str>, hash: &str, first: &mut Option<String>) {
    let Some(recorded) = recorded else { return };
    let same = !recorded.is_empty()
        && hash.get(..recorded.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(recorded));
    if !same && first.is_none() {
        let shown = &hash[..recorded.len().clamp(DIGITS, hash.len())];
        *first = Some(format!("{what}: the hash is {shown}, but the file says \"{recorded}\""));
    }
}

/// The byte string of a step: observation by row, column and channel, reward, terminal.
fn observed(replay: &RecordedGame, reward: f64, terminal: bool) -> Vec<u8> {
    let (shown, shape) = (replay.observe(), replay.observation().shape);
    let (channels, cells) = (shape[0], shape[1] * shape[2]);
    let by_cell = (0..cells).flat_map(|cell| (0..channels).map(move |channel| channel * cells + cell));
    let mut bytes: Vec<u8> = by_cell.map(|index| u8::from(shown[index] != 0)).collect();
    bytes.extend(reward.to_le_bytes());
    bytes.push(terminal.into());
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
