//! `quiver plot`: learning curves of one or more runs as PNG and SVG.
//!
//! [`curve`] reads the record of a run, [`figure`] composes the figure, and the `plot` crate draws it. The curve shows
//! evaluations. Training scores come from an agent that explores; `--training` adds them as thin lines.

mod curve;
mod figure;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use run::curve::display_name;
use run::directory::{RunDirError, write_atomically};

use crate::output::print_line;
use crate::runs;
use curve::{Recorded, RunCurve};
use figure::CurveFigure;
pub use figure::frame_unit;

/// Draw the learning curves of one or more runs, as PNG and SVG
#[derive(Args)]
#[command(after_help = "\
Examples:
  quiver plot pong-ver-seed0                                    runs/pong-ver-seed0/curve.{png,svg}
  quiver plot pong-{ver,per,uniform}-seed0 --out pong           pong.{png,svg}, three curves")]
pub struct Plot {
    /// Runs: directories, or names below runs/
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Path of the pictures without .png and .svg [default: RUN/curve; for several runs, curves]
    #[arg(long, value_name = "STEM")]
    out: Option<PathBuf>,
    /// Title of the figure [default: the game]
    #[arg(long)]
    title: Option<String>,
    /// Also draw the smoothed scores of training games
    #[arg(long)]
    training: bool,
}

/// Draws a run's curve into its directory.
pub fn draw(run: &Path) -> anyhow::Result<()> {
    let plot = Plot { runs: vec![run.to_owned()], out: None, title: None, training: false };
    plot.draw().map(drop)
}

impl Plot {
    pub fn run(&self) -> anyhow::Result<()> {
        self.draw()?.iter().try_for_each(|path| print_line(&path.display().to_string()))
    }

    /// Draws the figure and returns the paths of its files.
    fn draw(&self) -> anyhow::Result<Vec<PathBuf>> {
        let mut recorded = Vec::new();
        for name in &self.runs {
            let (path, resolved) = runs::open(name)?;
            recorded.push(Recorded::read(&path, &resolved.game, self.training)?);
        }
        let stem = self.stem(&recorded);
        let figure = compose(recorded, self.title.as_deref());
        let mut paths = Vec::new();
        for (extension, bytes) in [("png", figure.png()?), ("svg", figure.svg()?.into_bytes())] {
            let path = with_extension(&stem, extension);
            write(&path, &bytes)?;
            paths.push(path);
        }
        Ok(paths)
    }

    fn stem(&self, recorded: &[Recorded]) -> PathBuf {
        match (&self.out, recorded) {
            (Some(out), _) if out.extension().is_some_and(|e| e == "png" || e == "svg") => {
                out.with_extension("")
            }
            (Some(out), _) => out.clone(),
            (None, [one]) => one.run.join("curve"),
            (None, _) => PathBuf::from("curves"),
        }
    }
}

/// One figure of several runs. Baselines depend on a run's settings, so only a figure of one run shows them.
fn compose(mut recorded: Vec<Recorded>, title: Option<&str>) -> CurveFigure {
    let games: BTreeSet<_> = recorded.iter().map(|run| display_name(&run.game)).collect();
    let several_games = games.len() > 1;
    let games = games.into_iter().collect::<Vec<_>>().join(", ");
    let baselines =
        if let [one] = recorded.as_mut_slice() { std::mem::take(&mut one.baselines) } else { Vec::new() };
    let subtitle = curve::subtitle(&recorded);
    let names = curve::names(&recorded, several_games);
    let curves: Vec<RunCurve> =
        recorded.into_iter().zip(names).map(|(run, name)| run.into_curve(name)).collect();
    CurveFigure { title: title.map_or(games, str::to_owned), subtitle, curves, baselines }
}

/// Appends to the name: `v1.2` becomes `v1.2.png`, not `v1.png`.
fn with_extension(stem: &Path, extension: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    match write_atomically(path, bytes) {
        Err(RunDirError::Io { error, path }) => bail!("can't write {path}: {error}; choose another --out"),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_added_and_never_replaces_a_dot_of_the_name() {
        assert_eq!(with_extension(Path::new("a/v1.2"), "png"), Path::new("a/v1.2.png"));
    }
}
