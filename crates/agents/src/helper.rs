//! A second thread for the gradient: computes what the training thread does not wait for.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use tch::Tensor;

/// Work on tensors with a result of tensors.
pub type Job = Box<dyn FnOnce() -> [Tensor; 2] + Send>;

/// A thread that takes jobs from a queue. Its owner takes jobs too once it has nothing else to do, so no job waits for a thread
/// that another process keeps from a core.
pub struct Helper {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A job was added or has ended, or the helper must end.
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(usize, Job)>,
    /// By number; `None` after a panic.
    ended: Vec<(usize, Option<[Tensor; 2]>)>,
    ends: bool,
}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Helper")
    }
}

impl Helper {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new().name("gradient".into()).spawn({
            let shared = shared.clone();
            move || shared.work()
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Adds a job, which the helper starts when it is free.
    pub(crate) fn add(&self, number: usize, job: Job) {
        self.shared.lock().waiting.push_back((number, job));
        self.shared.changed.notify_one();
    }

    /// Works on the jobs that have not been started, waits for the others, and returns all results by number.
    ///
    /// # Panics
    ///
    /// If a job has.
    pub(crate) fn finish(&self, jobs: usize) -> Vec<(usize, [Tensor; 2])> {
        let mut queue = self.shared.lock();
        while queue.ended.len() < jobs {
            queue = match queue.waiting.pop_front() {
                Some((number, job)) => {
                    drop(queue);
                    let result = run(job);
                    let mut queue = self.shared.lock();
                    queue.ended.push((number, result));
                    queue
                }
                None => self.shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
        let ended = std::mem::take(&mut queue.ended);
        drop(queue);
        ended
            .into_iter()
            .map(|(number, result)| (number, result.expect("a job of the gradient panicked")))
            .collect()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut queue = self.lock();
        while !queue.ends {
            queue = match queue.waiting.pop_front() {
                Some((number, job)) => {
                    drop(queue);
                    let result = run(job);
                    let mut queue = self.lock();
                    queue.ended.push((number, result));
                    self.changed.notify_all();
                    queue
                }
                None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn run(job: Job) -> Option<[Tensor; 2]> {
    catch_unwind(AssertUnwindSafe(|| tch::no_grad(job))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_job_is_done_once_by_one_of_the_threads() {
        let helper = Helper::start().unwrap();
        for round in 0..200i64 {
            for number in 0..7usize {
                let job = move || [Tensor::from(round), Tensor::from(number as i64)];
                helper.add(number, Box::new(job));
            }
            let mut ended = helper.finish(7);
            ended.sort_by_key(|(number, _)| *number);
            for (index, (number, result)) in ended.iter().enumerate() {
                let read = crate::read::floats(&[&result[0], &result[1]]);
                assert_eq!((*number, read), (index, vec![round as f32, index as f32]));
            }
        }
    }

    #[test]
    #[should_panic(expected = "a job of the gradient panicked")]
    fn a_job_that_panics_is_noticed() {
        let helper = Helper::start().unwrap();
        helper.add(0, Box::new(|| panic!("on purpose")));
        helper.finish(1);
    }
}
