//! Writes the page of an invented run to standard output, for work on its design:
//!
//! ```sh
//! cargo run --release -p quiver-page --example invented > page.html
//! ```
#![forbid(unsafe_code)]

use page::{History, Sample, html};
use run::curve::CurvePoint;
use settings::Layers;

/// An hour of a run that fills its replay for four minutes, is then limited by its actors, and loses one for a while.
fn main() {
    let resolved = Layers::default().resolve(Some("space_invaders")).expect("a known game");
    let mut history = History::new();
    history.shards = 2;
    let mut sample = Sample { evaluators: 1, ..Sample::default() };
    sample.replay.shards = 2;
    for second in 0..3600 {
        let time = f64::from(second);
        let is_full = second > 240;
        let wobble = 1.0 + 0.06 * (time / 7.0).sin() + 0.04 * (time / 3.1).cos();
        sample.actors = if (1500..1800).contains(&second) { 1 } else { 2 };
        let speed = f64::from(sample.actors) * if is_full { 362.0 } else { 900.0 } * wobble;
        sample.seconds = time;
        sample.frames += speed as u64;
        sample.replay.items = (sample.frames / 4).min(1_000_000);
        sample.replay.bytes = sample.replay.items * 311;
        sample.training_score = (second > 60)
            .then(|| 180.0 + 250.0 * (1.0 - (-time / 2000.0).exp()) + 30.0 * (time / 90.0).sin());
        if is_full {
            sample.updates += (speed / 16.0) as u64;
            let training = 0.62 * speed / 724.0;
            sample.trained += training;
            sample.waited += 0.97 - training;
            sample.prepared += 0.31 * speed / 724.0;
            sample.replay.samples_per_insert = Some(8.0 + 0.9 * (-(time - 240.0) / 60.0).exp());
        } else {
            sample.waited += 0.99;
        }
        if second % 400 == 399 {
            let mean = 150.0 + 420.0 * (1.0 - (-time / 1800.0).exp()) + 25.0 * (time / 500.0).sin();
            history.evaluations.push(CurvePoint { frames: sample.frames as f64, mean, error: 32.0 });
        }
        history.push(sample.clone());
    }
    print!("{}", html(&resolved, &history));
}
