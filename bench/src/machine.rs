//! The conditions of a measurement: the processor, and how busy it was.

use std::fs;
use std::thread::available_parallelism;

/// Name and value of each fact, for the header. What the system does not tell is `unknown`.
pub fn facts() -> Vec<(&'static str, String)> {
    let cores = available_parallelism().map_or("unknown".to_owned(), |cores| cores.to_string());
    vec![
        ("processor", processor().unwrap_or_else(|| "unknown".to_owned())),
        ("cores", cores),
        ("load at start", load().unwrap_or_else(|| "unknown".to_owned())),
        ("torch threads", tch::get_num_threads().to_string()),
    ]
}

/// The first processor's name.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Programs that wanted a core, on average over the last minute.
fn load() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split_whitespace().next().map(str::to_owned)
}
