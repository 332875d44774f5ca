//! `quiver inspect`: the contents of the replay, blocked callers, and single transitions as pictures.
#![allow(clippy::disallowed_methods, reason = "the launcher polls its child processes")]

mod client;
mod run_shards;
mod strip;
mod text;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use replay::ItemKey;
use rpc::inspect::Inspection;
use serde_json::Value;

use crate::certs::SecretsArgs;
use crate::output::print_line;
use crate::processes;
use client::Clients;
use run_shards::RunShards;

/// Inspect a replay: sizes, rates, blocked callers, histograms of priorities, single transitions
///
/// Takes a run that is training on this machine, or the address of a shard. Inspecting changes nothing: listed transitions
/// do not count as sampled.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Inspect {
    /// An active run (its directory, or its name below runs/), or a shard's address: host:port or unix:/path
    target: String,
    /// The table to inspect [default: the first]
    #[arg(long, default_value = "", hide_default_value = true)]
    table: String,
    /// Number of items to list, those of largest priority
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    top: u32,
    /// Draw one transition, named by its key (shard incarnation:slot:generation, as --top lists it): its frames side by
    /// side in a PNG
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    item: Option<ItemKey>,
    /// File for the picture
    #[arg(long, value_name = "FILE", requires = "item", default_value = "item.png")]
    out: PathBuf,
    /// Inspect again every SECONDS, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", conflicts_with = "item", value_parser = clap::value_parser!(u32).range(1..=3600))]
    watch: Option<u32>,
    /// Print JSON: one array of shards, or with --watch one per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    secrets: SecretsArgs,
}

const EXAMPLES: &str = "\
Examples:
  quiver inspect pong-ver-seed0                    all shards of an active run
  quiver inspect pong-ver-seed0 --watch            the same, updated every 2 seconds
  quiver inspect 127.0.0.1:7701 --top 20 --json    one shard, as JSON
  quiver inspect 127.0.0.1:7701 --item 81:3:1045 --out item.png";

/// The interval over which rates are measured, without --watch.
const RATE_OVER: Duration = Duration::from_millis(500);

impl Inspect {
    pub fn run(&self) -> anyhow::Result<()> {
        let clients =
            Clients::connect(&processes::addresses(&self.target, "shard-")?, &self.secrets.credentials()?)?;
        if let Some(key) = self.item {
            return self.draw(&clients, key);
        }
        let mut before = clients.inspect(&self.table, self.top)?;
        let pause = self.watch.map_or(RATE_OVER, |seconds| Duration::from_secs(seconds.into()));
        loop {
            std::thread::sleep(pause);
            let now = clients.inspect(&self.table, self.top)?;
            self.show(&RunShards::read(&self.target)?, &before, &now)?;
            if self.watch.is_none() {
                return Ok(());
            }
            before = now;
        }
    }

    fn show(
        &self,
        shards: &RunShards,
        before: &[Option<Inspection>],
        now: &[Option<Inspection>],
    ) -> anyhow::Result<()> {
        // A shard that has just appeared has no rates yet.
        let inspected = before.iter().zip(now).filter_map(|(before, now)| {
            let now = now.as_ref()?;
            Some((before.as_ref().unwrap_or(now), now))
        });
        let names: Vec<String> =
            now.iter().flatten().map(|inspection| inspection.status.id.clone()).collect();
        let missing = shards.missing(&names.iter().map(String::as_str).collect::<Vec<_>>());
        if self.json {
            let present = inspected.map(|(before, now)| text::shard_json(shards, before, now));
            let all: Vec<Value> = present.chain(missing.iter().map(text::missing_json)).collect();
            return print_line(&Value::from(all).to_string());
        }
        let pages = inspected.map(|(before, now)| text::page(shards, before, now));
        let pages: Vec<String> = pages.chain(missing.iter().map(text::missing)).collect();
        let page = pages.join("\n");
        if self.watch.is_some() && std::io::stdout().is_terminal() {
            // Draw over the old page from the upper left corner, then clear the rest: no flicker.
            let page = page.replace('\n', "\x1b[K\n");
            let mut out = std::io::stdout().lock();
            return Ok(write!(out, "\x1b[H{page}\x1b[J").and_then(|()| out.flush())?);
        }
        print_line(&page)
    }

    fn draw(&self, clients: &Clients, key: ItemKey) -> anyhow::Result<()> {
        let (batch, spec) = clients.item(&self.table, key)?;
        let item = batch
            .items()
            .next()
            .context("the shard sent no item: it was evicted meanwhile, choose another of --top")?;
        let frames = strip::write(&self.out, &item, &spec)?;
        if self.json {
            return print_line(&text::item_json(&item, &self.out).to_string());
        }
        print_line(&format!("{}\nwrote its {} frames to {}", text::item(&item), frames, self.out.display()))
    }
}

/// `incarnation:slot:generation`.
fn parse_key(text: &str) -> Result<ItemKey, String> {
    let unknown = || format!("expected a key of three numbers such as 81:3:1045, got {text:?}");
    let mut parts = text.split(':');
    let mut next = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(unknown);
    let (incarnation, slot, generation) = (next()?, next()?, next()?);
    let small = |number: u64| u32::try_from(number).map_err(|_| unknown());
    if parts.next().is_some() {
        return Err(unknown());
    }
    Ok(ItemKey { incarnation: small(incarnation)?, slot: small(slot)?, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_three_numbers() {
        assert_eq!(parse_key("81:3:1045"), Ok(ItemKey { incarnation: 81, slot: 3, generation: 1045 }));
        for wrong in ["", "1:2", "1:2:3:4", "a:b:c", "1:99999999999:3", "-1:2:3"] {
            assert!(parse_key(wrong).is_err(), "{wrong}");
        }
    }
}
