//! The paper, whole: each figure of *Revisiting Prioritized Experience Replay: A Value Perspective* as a function that
//! runs its experiment, writes what came out, and says whether it is what the paper claims.
//!
//! ```text
//!  options ──► fig1 … fig6 ──► figN.csv, .png, .svg, .json ──► report.html, report.md
//!                  │
//!                  └── experience: one replayed transition, its metrics and bounds, the arithmetic checked
//! ```
//!
//! The mathematics is the crate `value`'s, the learning is the crate `learner`'s, the grids are the crate `envs`'s: what
//! is here are experiments. Read [`experience`] first, then the figures in order; [`execute`] is what `quiver paper` comes
//! to. README.md lists where we depart from the paper's text and from its authors' code.
#![forbid(unsafe_code)]

/// A row of a table or of a file: every value as text. Numbers come back to the last bit.
macro_rules! cells {
    ($($cell:expr),+ $(,)?) => {
        vec![$($cell.to_string()),+]
    };
}

pub mod experience;
pub mod figure;
pub mod options;
pub mod statistics;

pub mod fig1;
pub mod fig2;
pub mod fig3;
pub mod fig4;
pub mod fig5;
pub mod fig6;
pub mod report;

mod command;
mod maze;
mod scatter;

pub use command::{execute, exit_code};
pub use figure::Figure;
pub use options::{Effort, Options};

/// Computes a folder's files again with Python (`tests/check.py`) and panics if a number differs. Gives what it printed.
#[cfg(test)]
fn agrees(folder: &std::path::Path) -> String {
    let check = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/check.py");
    let ran = std::process::Command::new("python3").arg(check).arg(folder).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}
