//! `quiver doctor`: whether everything is there, and how to mend what is not.

mod machine;
mod roms;

use std::io::{IsTerminal, stdout};
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;

use crate::output::say;
use crate::torch::Probed;
use crate::{programs, runs, torch};

/// Check libtorch, ROMs, disk and memory, and say how to mend what is wrong
#[derive(Args)]
pub struct Doctor {
    /// Where runs are to go
    #[arg(long, value_name = "DIR", default_value = runs::RUNS)]
    run_dir: PathBuf,
}

/// What a check found.
#[derive(Debug, PartialEq)]
enum Finding {
    /// All is well.
    Good(String),
    /// Training works, something else will not or may not.
    Poor(String),
    /// Training can't work: what, and how to mend it.
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
            say(&line(name, &finding))?;
        }
        match broken {
            0 => say("\nready: try 'quiver train cartpole'"),
            1 => bail!("one thing needs mending: see the line marked ✗"),
            _ => bail!("{broken} things need mending: see the lines marked ✗"),
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
        return Poor(format!("can't be checked without {}", programs::LOCKSTEP));
    }
    match torch::probe() {
        Ok(Probed { works: true, gpus: 0 }) => Good("works on the CPU; no GPU found".into()),
        Ok(Probed { works: true, gpus: 1 }) => Good("works on the CPU and one GPU".into()),
        Ok(Probed { works: true, gpus }) => Good(format!("works on the CPU and {gpus} GPUs")),
        Ok(Probed { works: false, .. }) => {
            Broken("loads but can't add: run `make setup`, then `make build`".into())
        }
        Err(error) => Broken(format!("{error:#}")),
    }
}

fn run_directory(path: &Path) -> Finding {
    match runs::check_writable(path) {
        Ok(()) => Good(format!("{} can be written", path.display())),
        Err(error) => Broken(error.to_string()),
    }
}
