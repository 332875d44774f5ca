//! The pool of a run's remote shards: asks all of them for their status, samples over all of them.
//!
//! The pool owns the connections, the state of the ratio ([`Control`]), and which shard is where ([`Places`]): a shard that
//! has moved is called at its new address from then on. The pool never decides to wait; its caller does.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use proto::{Batch, StoreSpec};
use replay::ShardStatus;
use rpc::place::Place;
use rpc::shard::{Shard, ShardError};
use tokio::sync::watch;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::control::Control;
use crate::discovery::Seeker;
use crate::places::{Found, Places};
use crate::spread::{Masses, Point};

/// The shards.
pub struct ShardPool {
    /// The ratio, by what they count.
    pub control: Control,
    shards: Vec<Shard>,
    places: Places,
    /// The same, for actors.
    published: watch::Sender<Vec<Place>>,
    /// Whether a shard was sent elsewhere after the questions whose answers are being taken: its answer is another's.
    moved: Vec<bool>,
    /// The run does without these: they are not asked.
    without: BTreeSet<usize>,
    /// Looks for those that are missing, if their addresses may change.
    seeker: Option<Seeker>,
    clock: Clock,
}

/// What one shard has drawn.
pub struct Drawn {
    /// Its number.
    pub shard: usize,
    /// The items.
    pub batch: Batch,
}

impl ShardPool {
    /// Shards that are where `places` says, as far as is known, and those of them that the run does without. Actors hear
    /// of it by `published`.
    pub fn new(
        shards: Vec<Shard>,
        places: Places,
        published: watch::Sender<Vec<Place>>,
        control: Control,
        without: BTreeSet<usize>,
        seeker: Option<Seeker>,
        clock: Clock,
    ) -> Self {
        let moved = vec![false; shards.len()];
        let mut pool = Self { control, shards, places, published, moved, without, seeker, clock };
        pool.spread();
        pool
    }

    /// How many there are, those included that the run goes on without.
    pub fn len(&self) -> usize {
        self.shards.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Changes what each shall hold, with its next grant, and which ones the run goes on without. One that it shall go on
    /// with again is asked from now on, and part of the run when it answers.
    pub fn tell(&mut self, spec: &StoreSpec, without: &BTreeSet<usize>) -> Result<(), String> {
        self.shards.iter_mut().for_each(|shard| shard.tell(spec.clone()));
        let absent = self.without.union(self.places.returning());
        let returning: BTreeSet<usize> = absent.copied().filter(|shard| !without.contains(shard)).collect();
        for &shard in &returning {
            let Place { address, id, .. } = &self.places.all()[shard];
            info!(shard, id, %address, "the run goes on with this shard as soon as it answers");
        }
        self.without.clone_from(without);
        self.expect_back(returning)
    }

    fn expect_back(&mut self, returning: BTreeSet<usize>) -> Result<(), String> {
        let kept = self.places.expect_back(returning);
        kept.map_err(|error| format!("can't remember which shards are expected back: {error:#}"))?;
        self.spread();
        Ok(())
    }

    /// Says who is part of the run, to those that reckon with it.
    fn spread(&mut self) {
        let absent = self.without.union(self.places.returning()).copied().collect();
        for (number, shard) in self.shards.iter_mut().enumerate() {
            shard.hurry(self.places.returning().contains(&number));
        }
        self.control.set_absent(&absent);
        self.places.set_absent(&absent);
        self.publish_places();
    }

    /// Those that do not answer and are waited for, in words.
    pub fn silent(&self) -> Vec<String> {
        let silent = |shard: &usize| !self.control.is_present(*shard) && !self.control.is_absent(*shard);
        let words = |shard: usize| {
            let Place { address, id, .. } = &self.places.all()[shard];
            format!("shard {shard} ({id}), last at {address}: {}", self.shards[shard].last_error())
        };
        (0..self.len()).filter(silent).map(words).collect()
    }

    /// Whether all that are waited for answer, and each that has items has begun to forget some.
    pub fn is_full(&self) -> bool {
        let tables = self.control.present().map(ShardStatus::first_table);
        let mut holding = tables.filter(|table| table.items > 0).peekable();
        self.silent().is_empty() && holding.peek().is_some() && holding.all(|table| table.forgotten() > 0)
    }

    /// The largest priority that a shard which answers has seen.
    pub fn largest_priority(&self) -> f64 {
        let seen = self.control.present().map(|status| status.first_table().largest_priority);
        seen.filter(|priority| priority.is_finite()).fold(0.0, f64::max)
    }

    /// Asks all for news, which they give when they have more items, or after `wait`. Says whether any was heard.
    pub async fn ask_for_news(&mut self, wait: Duration) -> Result<bool, String> {
        self.follow_sightings();
        let control = &self.control;
        let asked = others(&mut self.shards, &self.without).map(|(index, shard)| async move {
            let until = if wait.is_zero() { 0 } else { control.until_inserts(index) };
            (index, shard.grant(control.allowance(index), until, wait, false).await)
        });
        let mut answers = join_all(asked).await;
        answers.sort_by_key(|(_, answer)| self.is_stranger(answer.as_ref().ok()));
        self.moved.fill(false);
        let mut heard_any = false;
        for (shard, answer) in answers {
            heard_any |= self.take(shard, answer)?;
        }
        Ok(heard_any)
    }

    /// Asks every shard for its part of the points; what a shard does not give weighs nothing from then on.
    pub async fn draw(&mut self, points: &[Point], masses: &mut Masses) -> Result<Vec<Drawn>, String> {
        self.follow_sightings();
        let control = &self.control;
        let asked = others(&mut self.shards, &self.without).map(|(index, shard)| async move {
            let own = points.iter().filter(|point| point.shard == index);
            let own = own.map(|point| point.within).collect();
            (index, shard.sample(own, control.allowance(index)).await)
        });
        let mut answers = join_all(asked).await;
        answers.sort_by_key(|(_, answer)| self.is_stranger(answer.as_ref().ok().map(|(_, news)| news)));
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

    /// Turns to where those that are missing were seen.
    fn follow_sightings(&mut self) {
        let Some(seeker) = &mut self.seeker else { return };
        let is_missing = |shard: &usize| !self.control.is_present(*shard) && !self.without.contains(shard);
        let missing: Vec<usize> = (0..self.shards.len()).filter(is_missing).collect();
        let Some(seen) = seeker.news(!missing.is_empty()) else { return };
        let mut found_any = false;
        for (name, address) in &seen {
            let number = self.places.all().iter().position(|place| place.id == *name);
            match number {
                None => seeker.pass_over(name, address),
                Some(number) if missing.contains(&number) && self.shards[number].address() != address => {
                    info!(shard = number, id = name, %address, "the shard was seen here");
                    self.places.seen(number, address.clone());
                    self.shards[number].move_to(address.clone());
                    found_any = true;
                }
                Some(_) => {}
            }
        }
        if found_any {
            self.publish_places();
        }
    }

    /// Tells all that the run has ended.
    pub async fn tell_the_end(&mut self) {
        let told = others(&mut self.shards, &self.without);
        join_all(told.map(|(_, shard)| shard.grant(None, 0, Duration::ZERO, true))).await;
    }

    /// Whether nobody knows who answered. Answers of those that are known are taken first: a stranger gets only a number
    /// that none of those has that answer in the same round.
    fn is_stranger(&self, news: Option<&ShardStatus>) -> bool {
        news.is_some_and(|news| !self.places.all().iter().any(|place| place.id == news.id))
    }

    /// Takes in a shard's news, or that it has none. Says whether it was heard.
    fn take(&mut self, shard: usize, answer: Result<ShardStatus, ShardError>) -> Result<bool, String> {
        match answer {
            _ if self.moved[shard] => Ok(false),
            Ok(news) => {
                if !self.is_itself(shard, &news)? {
                    return Ok(false);
                }
                let last = self.control.last_status(shard);
                if last.is_none_or(|last| last.incarnation != news.incarnation) {
                    let items = news.first_table().items;
                    info!(shard = %self.shards[shard].address(), id = news.id, incarnation = news.incarnation, items, "shard");
                }
                self.control.heard(shard, news);
                if self.places.returning().contains(&shard) {
                    info!(shard, "the run goes on with this shard again");
                    let others = self.places.returning().iter().copied().filter(|&other| other != shard);
                    self.expect_back(others.collect())?;
                }
                Ok(true)
            }
            Err(ShardError::Unreachable(reason)) => {
                if self.control.is_present(shard) {
                    warn!(shard = %self.shards[shard].address(), reason, "the shard does not answer; drawing elsewhere");
                }
                self.control.lost(shard);
                self.places.silent(shard);
                Ok(false)
            }
            Err(ShardError::Refused(reason)) => Err(reason),
        }
    }

    /// Whether a shard's news are its own. If not, it is looked for elsewhere from now on.
    fn is_itself(&mut self, shard: usize, news: &ShardStatus) -> Result<bool, String> {
        let address = self.shards[shard].address().clone();
        let found = self.places.answered(shard, &news.id, self.clock.now());
        match found.map_err(|error| format!("can't remember shard {}: {error:#}", news.id))? {
            Found::Itself => Ok(true),
            Found::Again => {
                self.publish_places();
                Ok(true)
            }
            Found::Newcomer { instead_of } => {
                if let Some(former) = instead_of {
                    warn!(shard, %address, id = news.id, former, "another shard took the place of one that is lost");
                }
                self.publish_places();
                Ok(true)
            }
            Found::Stranger => {
                warn!(shard, %address, id = news.id, "a shard that is not of this run is where this one was");
                self.shards[shard].move_to(self.places.all()[shard].address.clone());
                self.control.lost(shard);
                Ok(false)
            }
            Found::Neighbour { other, tries } => {
                if tries <= self.len() {
                    warn!(shard, other, %address, id = news.id, "two shards have changed places");
                }
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
        self.published.send_replace(self.places.heard());
    }
}

/// All but those that the run does without, with their numbers.
fn others<'a>(
    shards: &'a mut [Shard],
    without: &'a BTreeSet<usize>,
) -> impl Iterator<Item = (usize, &'a mut Shard)> {
    shards.iter_mut().enumerate().filter(|(index, _)| !without.contains(index))
}
