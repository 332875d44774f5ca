//! `quiver inspect`: what is in the replay, who waits for whom, and single transitions as pictures.

mod client;
mod roll;
mod strip;
mod text;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use replay::ItemKey;
use rpc::inspect::Seen;
use serde_json::Value;

use crate::certs::SecretsArgs;
use crate::output::say;
use crate::processes;
use client::Clients;
use roll::Roll;

/// Look into a replay: sizes, rates, who waits, how priorities are spread, single transitions
///
/// Names a run that trains on this machine, or the address of a shard. Looking changes nothing: it is no draw.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Inspect {
    /// A run (its directory, or its name below runs/), or a shard's address: host:port or unix:/path
    whose: String,
    /// Which table, if there are several [default: the first]
    #[arg(long, default_value = "", hide_default_value = true)]
    table: String,
    /// How many of the items of largest priority to list
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=1000))]
    top: u32,
    /// One transition, by its key as --top lists it: its frames go side by side into a PNG
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    item: Option<ItemKey>,
    /// Where the picture goes
    #[arg(long, value_name = "FILE", requires = "item", default_value = "item.png")]
    out: PathBuf,
    /// Look again every so many seconds, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", conflicts_with = "item", value_parser = clap::value_parser!(u32).range(1..=3600))]
    watch: Option<u32>,
    /// For programs: one JSON object, or one a line with --watch
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    secrets: SecretsArgs,
}

const EXAMPLES: &str = "\
Examples:
  quiver inspect pong-ver-seed0                    all shards of a run that trains now
  quiver inspect pong-ver-seed0 --watch            the same, again and again
  quiver inspect 127.0.0.1:7777 --top 20 --json    one shard, for a program
  quiver inspect 127.0.0.1:7777 --item 81:3:1045 --out item.png";

/// Rates are over this long, unless the replay is watched.
const RATE_OVER: Duration = Duration::from_millis(500);

impl Inspect {
    pub fn run(&self) -> anyhow::Result<()> {
        let clients =
            Clients::connect(&processes::addresses(&self.whose, "shard-")?, &self.secrets.credentials()?)?;
        if let Some(key) = self.item {
            return self.draw(&clients, key);
        }
        let mut before = clients.look(&self.table, self.top)?;
        let pause = self.watch.map_or(RATE_OVER, |seconds| Duration::from_secs(seconds.into()));
        loop {
            std::thread::sleep(pause);
            let now = clients.look(&self.table, self.top)?;
            self.show(&Roll::read(&self.whose)?, &before, &now)?;
            if self.watch.is_none() {
                return Ok(());
            }
            before = now;
        }
    }

    fn show(&self, roll: &Roll, before: &[Option<Seen>], now: &[Option<Seen>]) -> anyhow::Result<()> {
        // One that has just come has no rates yet.
        let both = before.iter().zip(now).filter_map(|(before, now)| {
            let now = now.as_ref()?;
            Some((before.as_ref().unwrap_or(now), now))
        });
        let names: Vec<String> = now.iter().flatten().map(|seen| seen.status.id.clone()).collect();
        let missing = roll.missing(&names.iter().map(String::as_str).collect::<Vec<_>>());
        if self.json {
            let shards = both.map(|(before, now)| text::shard_json(roll, before, now));
            let shards: Vec<Value> = shards.chain(missing.iter().map(text::missing_json)).collect();
            return say(&Value::from(shards).to_string());
        }
        let pages = both.map(|(before, now)| text::page(roll, before, now));
        let pages: Vec<String> = pages.chain(missing.iter().map(text::missing)).collect();
        let page = pages.join("\n");
        if self.watch.is_some() && std::io::stdout().is_terminal() {
            // From the upper left corner over what was there, then clear the rest.
            let page = page.replace('\n', "\x1b[K\n");
            let mut out = std::io::stdout().lock();
            return Ok(write!(out, "\x1b[H{page}\x1b[J").and_then(|()| out.flush())?);
        }
        say(&page)
    }

    fn draw(&self, clients: &Clients, key: ItemKey) -> anyhow::Result<()> {
        let (batch, spec) = clients.item(&self.table, key)?;
        let item = batch.items().next().context("the shard gave no item")?;
        let frames = strip::write(&self.out, &item, &spec)?;
        if self.json {
            return say(&text::item_json(&item, &self.out).to_string());
        }
        say(&format!("{}\n{} frames in {}", text::item(&item), frames, self.out.display()))
    }
}

/// `incarnation:slot:generation`.
fn parse_key(text: &str) -> Result<ItemKey, String> {
    let unknown = || format!("a key is three numbers as in 81:3:1045, got {text:?}");
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
