//! The closing summary of a lockstep run.

use std::path::Path;
use std::process::Command;

use run::event::RunOutcome;
use settings::Resolved;

/// Draws the curve and prints the summary.
pub fn print(path: &Path, resolved: &Resolved, outcome: &RunOutcome) {
    run::summary::print(path, resolved, outcome, draw_curve(path));
}

/// Draws the curve by `quiver plot`: this program does not link the plotting code.
fn draw_curve(path: &Path) -> Result<(), String> {
    let quiver = std::env::current_exe().map_err(|error| error.to_string())?.with_file_name("quiver");
    let output = Command::new(quiver).arg("plot").arg(path).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}
