//! `quiver-actor`: an actor or evaluator as a process. Read [`actor::start`] next.
#![forbid(unsafe_code)]

use actor::start::Args;
use clap::Parser;

fn main() {
    let args = Args::parse();
    if let Err(error) = args.run() {
        let text = format!("{error:#}");
        eprintln!("error: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
        std::process::exit(1);
    }
}
