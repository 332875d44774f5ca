//! Side-by-side benchmarks: ours against the bare library underneath, in one run on one machine.
#![forbid(unsafe_code)]

mod learner;

fn main() {
    tch::set_num_threads(1);
    learner::run();
}
