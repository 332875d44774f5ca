//! `quiver doctor`: checks the installation and the machine, and prints a remedy for each problem.

mod machine;
mod roms;

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;

use crate::output::print_line;
use crate::torch::Probed;
use crate::{programs, runs, torch};

/// Check programs, libtorch, ROMs, disk and memory, and print a remedy for each problem
#[derive(Args)]
pub struct Doctor {
    /// Directory for runs
    #[arg(long, value_name = "DIR", default_value = runs::RUNS)]
    run_dir: PathBuf,
}

/// The result of a check.
#[derive(Debug, PartialEq)]
enum Finding {
    /// No problem.
    Good(String),
    /// Training works; something else does not, or may not.
    Poor(String),
    /// Training cannot work: the problem and its remedy.
    Broken(String),
}

use Finding::{Broken, Good, Poor};

impl Doctor {
    pub fn run(&self) -> anyhow::Result<()> {
        type Check<'a> = (&'a str, Box<dyn Fn() -> Finding + 'a>);
        let checks: [Check; 9] = [
            ("program", Box::new(program)),
            ("libtorch", Box::new(libtorch)),
            ("ROMs", Box::new(roms::roms)),
            ("run directory", Box::new(|| run_directory(&self.run_dir))),
            ("disk", Box::new(|| machine::disk(&self.run_dir))),
            ("memory", Box::new(machine::memory)),
            ("cores", Box::new(machine::cores)),
            ("video", Box::new(machine::video)),
            ("terminal", Box::new(machine::terminal)),
        ];
        let mut broken = 0;
        for (name, check) in checks {
            let finding = check();
            broken += usize::from(matches!(finding, Broken(_)));
            print_line(&line(name, &finding))?;
        }
        match broken {
            0 => print_line("\nno problems found: try 'quiver train cartpole'"),
            1 => bail!("1 check failed: see the line marked ✗"),
            _ => bail!("{broken} checks failed: see the lines marked ✗"),
        }
    }
}

fn line(name: &str, finding: &Finding) -> String {
    let (mark, colour, text) = match finding {
        Good(text) => ('✓', 32, text),
        Poor(text) => ('!', 33, text),
        Broken(text) => ('✗', 31, text),
    };
    let mark = if stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        format!("\x1b[{colour}m{mark}\x1b[0m")
    } else {
        mark.to_string()
    };
    format!("{mark} {name:<14} {text}")
}

fn program() -> Finding {
    match programs::ALL.iter().try_for_each(|name| programs::find(name).map(drop)) {
        Ok(()) => Good(format!("quiver {}, {}", env!("CARGO_PKG_VERSION"), programs::ALL.join(", "))),
        Err(error) => Broken(format!("{error:#}")),
    }
}

fn libtorch() -> Finding {
    if programs::find(programs::LOCKSTEP).is_err() {
        return Poor(format!("not checked: {} is missing", programs::LOCKSTEP));
    }
    match torch::probe() {
        Ok(Probed { works: true, gpus: 0 }) => Good("works on the CPU; no GPU found".into()),
        Ok(Probed { works: true, gpus: 1 }) => Good("works on the CPU and one GPU".into()),
        Ok(Probed { works: true, gpus }) => Good(format!("works on the CPU and {gpus} GPUs")),
        Ok(Probed { works: false, .. }) => {
            Broken("loads but computes a wrong sum: run 'make setup', then 'make build'".into())
        }
        Err(error) => Broken(format!("{error:#}")),
    }
}

fn run_directory(path: &Path) -> Finding {
    match runs::check_writable(path) {
        Ok(()) => Good(format!("{} is writable", path.display())),
        Err(error) => Broken(error.to_string()),
    }
}
