//! All shards of a run as one: asks them, hears them, draws from them.
//!
//! It owns the connections, the state of the ratio, and who is where ([`Places`]): a shard that has moved is asked at its
//! new address from then on. It never decides to wait; [`crate::intake`] does.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use proto::{Batch, StoreSpec};
use replay::control::Control;
use replay::spread::{Masses, Point};
use rpc::place::Place;
use rpc::shard::{News, Shard, ShardError};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::places::{Found, Places};

/// The shards.
pub struct Fleet {
    /// The ratio, by what they count.
    pub control: Control,
    shards: Vec<Shard>,
    last: Vec<Option<News>>,
    places: Places,
    /// The same, for actors.
    published: watch::Sender<Vec<Place>>,
    /// Whether a shard was sent elsewhere after the questions whose answers are being taken: its answer is another's.
    moved: Vec<bool>,
    metrics: Arc<Metrics>,
}

/// What one shard has drawn.
pub struct Drawn {
    /// Its number.
    pub shard: usize,
    /// The items.
    pub batch: Batch,
}

impl Fleet {
    /// Shards that are where `places` says, as far as is known. Actors hear of it by `published`.
    pub fn new(
        shards: Vec<Shard>,
        places: Places,
        published: watch::Sender<Vec<Place>>,
        control: Control,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (last, moved) = (vec![None; shards.len()], vec![false; shards.len()]);
        Self { control, shards, last, places, published, moved, metrics }
    }

    /// How many there are, those included that the run goes on without.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Changes what each shall hold, with its next grant, and which ones the run goes on without.
    pub fn tell(&mut self, spec: &StoreSpec, absent: &BTreeSet<usize>) {
        self.shards.iter_mut().for_each(|shard| shard.tell(spec.clone()));
        self.control.set_absent(absent);
        self.places.set_absent(absent);
        self.publish_places();
    }

    /// Those that do not answer and are waited for, in words.
    pub fn silent(&self) -> Vec<String> {
        let silent = |shard: &usize| !self.control.is_present(*shard) && !self.control.is_absent(*shard);
        let words = |shard: usize| {
            let Place { address, id, .. } = &self.places.all()[shard];
            format!("shard {shard} ({id}), last at {address}")
        };
        (0..self.len()).filter(silent).map(words).collect()
    }

    /// Whether all that are waited for answer, and each that has items has begun to forget some.
    pub fn is_full(&self) -> bool {
        let mut holding = self.present_news().filter(|shard| shard.items > 0).peekable();
        self.silent().is_empty() && holding.peek().is_some() && holding.all(|shard| shard.forgotten > 0)
    }

    /// What those that answer last said.
    fn present_news(&self) -> impl Iterator<Item = &News> {
        let present =
            |(index, news): (usize, &'_ Option<News>)| self.control.is_present(index) && news.is_some();
        self.last.iter().enumerate().filter(move |&pair| present(pair)).filter_map(|(_, news)| news.as_ref())
    }

    /// Bytes of all chunks, shard by shard, of those that answer.
    pub fn bytes(&self) -> Vec<u64> {
        self.present_news().map(|news| news.bytes_used).collect()
    }

    /// Asks all for news, which they give when they have more items, or after `wait`. Says whether any was heard.
    pub async fn ask_for_news(&mut self, wait: Duration) -> Result<bool, String> {
        let control = &self.control;
        let asked = present(&mut self.shards, control).map(|(index, shard)| async move {
            let until = if wait.is_zero() { 0 } else { control.until_inserts(index) };
            (index, shard.grant(control.allowance(index), until, wait, false).await)
        });
        let answers = join_all(asked).await;
        self.moved.fill(false);
        let mut heard_any = false;
        for (shard, answer) in answers {
            heard_any |= self.take(shard, answer)?;
        }
        Ok(heard_any)
    }

    /// Asks every shard for its part of the points; what a shard does not give weighs nothing from then on.
    pub async fn draw(&mut self, points: &[Point], masses: &mut Masses) -> Result<Vec<Drawn>, String> {
        let control = &self.control;
        let asked = present(&mut self.shards, control).map(|(index, shard)| async move {
            let own = points.iter().filter(|point| point.shard == index);
            let own = own.map(|point| point.within).collect();
            (index, shard.sample(own, control.allowance(index)).await)
        });
        let answers = join_all(asked).await;
        self.moved.fill(false);
        let mut drawn = Vec::with_capacity(self.len());
        for (shard, answer) in answers {
            let (batch, answer) = match answer {
                Ok((batch, news)) => (batch, Ok(news)),
                Err(error) => (Batch::default(), Err(error)),
            };
            // Items of a shard that gave only some of what was asked have no known probability; more makes no sense.
            let wanted = points.iter().filter(|point| point.shard == shard).count();
            if self.take(shard, answer)? && batch.len() == wanted {
                drawn.push(Drawn { shard, batch });
            } else if wanted > 0 {
                masses.lose(shard);
            }
        }
        Ok(drawn)
    }

    /// Tells all that the run has ended.
    pub async fn tell_the_end(&mut self) {
        let told = present(&mut self.shards, &self.control);
        join_all(told.map(|(_, shard)| shard.grant(None, 0, Duration::ZERO, true))).await;
    }

    /// Takes in a shard's news, or that it has none. Says whether it was heard.
    fn take(&mut self, shard: usize, answer: Result<News, ShardError>) -> Result<bool, String> {
        match answer {
            _ if self.moved[shard] => Ok(false),
            Ok(news) => {
                if !self.is_itself(shard, &news)? {
                    return Ok(false);
                }
                if self.last[shard].as_ref().is_none_or(|last| last.incarnation != news.incarnation) {
                    let items = news.items;
                    info!(shard = %self.shards[shard].address(), id = news.id, incarnation = news.incarnation, items, "shard");
                }
                self.control.heard(shard, news.heard());
                self.metrics.largest_priority(news.largest_priority);
                self.last[shard] = Some(news);
                Ok(true)
            }
            Err(ShardError::Unreachable(reason)) => {
                if self.control.is_present(shard) {
                    warn!(shard = %self.shards[shard].address(), reason, "the shard does not answer; drawing elsewhere");
                }
                self.control.lost(shard);
                Ok(false)
            }
            Err(ShardError::Refused(reason)) => Err(reason),
        }
    }

    /// Whether a shard's news are its own. If not, it is looked for elsewhere from now on.
    fn is_itself(&mut self, shard: usize, news: &News) -> Result<bool, String> {
        let address = self.shards[shard].address().clone();
        let found = self.places.answered(shard, &news.id);
        match found.map_err(|error| format!("can't remember shard {}: {error:#}", news.id))? {
            Found::Itself => Ok(true),
            Found::Newcomer { instead_of } => {
                if let Some(former) = instead_of {
                    warn!(shard, %address, id = news.id, former, "another shard took the place of one that is lost");
                }
                self.publish_places();
                Ok(true)
            }
            Found::Neighbour(other) => {
                warn!(shard, other, %address, id = news.id, "two shards have changed places");
                for number in [shard, other] {
                    self.shards[number].move_to(self.places.all()[number].address.clone());
                    self.moved[number] = true;
                    self.control.lost(number);
                }
                self.publish_places();
                Ok(false)
            }
            Found::Twice => {
                Err(format!("{address} leads to shard {} as another address does: give each once", news.id))
            }
        }
    }

    fn publish_places(&self) {
        self.published.send_replace(self.places.all().to_vec());
    }
}

/// Those that the run does not go on without, with their numbers.
fn present<'a>(
    shards: &'a mut [Shard],
    control: &'a Control,
) -> impl Iterator<Item = (usize, &'a mut Shard)> {
    shards.iter_mut().enumerate().filter(|(index, _)| !control.is_absent(*index))
}
