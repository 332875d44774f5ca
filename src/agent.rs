//! `quiver evaluate` and `quiver play`: play games with a run's weights.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, value_parser};
use run::checkpoint::Checkpoint;
use run::command::{Command, TrainedAgent};
use run::directory::{RunDirError, checkpoints};
use settings::choices::{Device, EvaluationPolicy};
use settings::resolve::Resolved;

use crate::{runs, torch, train};

/// Play whole games with a run's weights and print the mean score, its standard error and every score
#[derive(Args)]
#[command(after_help = "\
Examples:
  quiver evaluate pong-ver-seed0 --episodes 30
  quiver evaluate pong-ver-seed0 --episodes 30 --policy greedy --checkpoint best --json")]
pub struct Evaluate {
    #[command(flatten)]
    player: Player,
    /// Number of games
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = value_parser!(u32).range(1..=1_000_000))]
    episodes: u32,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Play one game with a run's weights and save it as a video
#[derive(Args)]
#[command(after_help = "\
Examples:
  quiver play pong-ver-seed0 --video pong.mp4     needs ffmpeg; without it PNG frames are saved
  quiver play pong-ver-seed0 --video pong.gif     needs no other program
  quiver play pong-ver-seed0 --video frames/      PNG frames in a directory")]
pub struct Play {
    #[command(flatten)]
    player: Player,
    /// A file ending in .mp4 or .gif, or a directory for PNG frames
    #[arg(long, value_name = "FILE|DIR")]
    video: PathBuf,
    /// Stop after this many agent steps [default: play the whole game]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    steps_max: Option<u64>,
}

#[derive(Args)]
struct Player {
    /// The run: its directory, or its name below runs/
    run: PathBuf,
    /// The checkpoint whose weights play: final, best or a number [default: the first that exists of final, best, newest]
    #[arg(long, value_name = "NAME")]
    checkpoint: Option<String>,
    /// How actions are chosen: stochastic or greedy [default: the run's evaluation_policy]
    #[arg(long)]
    policy: Option<EvaluationPolicy>,
    /// Seed of the games
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Device of the network: auto, cpu, cuda or cuda:N [default: the run's device]
    #[arg(long)]
    device: Option<Device>,
}

impl Evaluate {
    pub fn run(&self) -> anyhow::Result<()> {
        let (agent, _) = self.player.agent()?;
        torch::hand_over(&Command::Evaluate { agent, episodes: self.episodes, json: self.json })
    }
}

impl Play {
    pub fn run(&self) -> anyhow::Result<()> {
        let (agent, Resolved { settings, .. }) = self.player.agent()?;
        check_video(&self.video)?;
        let whole_game = u64::from(settings.time_limit_frames.div_ceil(settings.frame_skip));
        let steps_max = self.steps_max.unwrap_or(whole_game);
        torch::hand_over(&Command::Play { agent, video: self.video.clone(), steps_max })
    }
}

impl Player {
    /// The agent to load, after every check that needs no network: run, checkpoint, ROM.
    fn agent(&self) -> anyhow::Result<(TrainedAgent, Resolved)> {
        let (run, resolved) = runs::open(&self.run)?;
        Checkpoint::find(&checkpoints(&run), self.checkpoint.as_deref())?;
        train::check_game(&resolved)?;
        let Self { checkpoint, policy, seed, device, .. } = self;
        let agent = TrainedAgent {
            run,
            checkpoint: checkpoint.clone(),
            policy: *policy,
            device: *device,
            seed: *seed,
        };
        Ok((agent, resolved))
    }
}

fn check_video(video: &Path) -> anyhow::Result<()> {
    let ending = video.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let folder = match ending.as_deref() {
        Some("mp4" | "gif") => video.parent().unwrap_or(video),
        None => video,
        Some(_) if video.is_dir() => video,
        Some(other) => bail!("can't write a .{other} video: use .mp4, .gif, or a directory for PNG frames"),
    };
    match runs::check_writable(folder) {
        Err(RunDirError::Io { error, .. }) => {
            bail!("can't write {}: {error}; choose another --video", video.display())
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_video_is_a_file_of_two_kinds_or_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: &str| check_video(&folder.path().join(name)).map_err(|error| error.to_string());
        for name in ["a.mp4", "new/a.GIF", "frames", "frames/"] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
        assert_eq!(
            check("a.avi").unwrap_err(),
            "can't write a .avi video: use .mp4, .gif, or a directory for PNG frames"
        );
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(check("file/a.gif").unwrap_err().ends_with("choose another --video"));
        assert!(check_video(Path::new("a.gif")).is_ok());
    }
}
