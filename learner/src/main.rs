//! `quiver-learner`: the learner process. Read [`learner::start`] next.
#![forbid(unsafe_code)]

use clap::Parser;
use learner::start::Args;

fn main() {
    let args = Args::parse();
    if let Err(error) = args.run() {
        let text = format!("{error:#}");
        eprintln!("error: {}", text.split_whitespace().collect::<Vec<_>>().join(" "));
        std::process::exit(1);
    }
}
