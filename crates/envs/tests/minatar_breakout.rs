//! MinAtar Breakout against traces that the reference package showed as a black box (`docs/minatar-breakout.md`).

use envs::{ActionSet, EnvOptions, Environment, FrameMaximum};
use serde_json::Value;

const TRACES: &str = include_str!("fixtures/minatar_breakout.json");

fn start(ball: (u64, u64)) -> Box<dyn Environment> {
    let options = EnvOptions {
        frame_skip: 1,
        frame_maximum: FrameMaximum::Rgb,
        sticky_actions: 0.0,
        noop_max: 0,
        action_set: ActionSet::Full,
        time_limit_frames: 0,
        difficulty_ramping: true,
        roms: None,
    };
    let made = (0..64).map(|seed| envs::make("MinAtar/Breakout-v1", &options, seed).unwrap());
    made.into_iter()
        .find(|game| shown(game.as_ref()).ball == ball)
        .expect("both sides come up within 64 seeds")
}

/// What an observation shows.
struct Shown {
    paddle: u64,
    ball: (u64, u64),
    trail: (u64, u64),
    bricks: String,
}

fn shown(game: &dyn Environment) -> Shown {
    let channel = |index: usize| &game.observation()[100 * index..100 * (index + 1)];
    let cell = |index: usize| {
        let cells = channel(index);
        assert_eq!(cells.iter().filter(|&&byte| byte != 0).count(), 1);
        let at = cells.iter().position(|&byte| byte == 255).unwrap() as u64;
        (at / 10, at % 10)
    };
    let (row, paddle) = cell(0);
    assert_eq!(row, 9);
    let (above, bricks) = channel(3).split_at(10);
    let (bricks, below) = bricks.split_at(30);
    assert!(above.iter().chain(below).all(|&byte| byte == 0), "bricks are in three rows only");
    let bricks = bricks.iter().map(|&byte| if byte == 255 { '1' } else { '0' }).collect();
    Shown { paddle, ball: cell(1), trail: cell(2), bricks }
}

#[test]
fn every_observed_trace_is_played_alike() {
    let traces: Value = serde_json::from_str(TRACES).unwrap();
    let columns = ["reward", "terminal", "ball_row", "ball_col", "trail_row", "trail_col", "paddle_col"];
    let listed: Vec<&str> =
        traces["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(listed[..7], columns);
    let number = |value: &Value| value.as_u64().unwrap();
    let (mut steps, mut ends) = (0, 0);
    for segment in traces["segments"].as_array().unwrap() {
        let ball = &segment["start"]["ball"];
        let mut game = start((number(&ball[0]), number(&ball[1])));
        let actions = segment["actions"].as_array().unwrap();
        for (step, (action, row)) in actions.iter().zip(segment["steps"].as_array().unwrap()).enumerate() {
            let name = format!("{}, step {step}", segment["name"]);
            let outcome = game.step(number(action) as usize);
            let Shown { paddle, ball, trail, bricks } = shown(game.as_ref());
            let got = [
                f64::from(outcome.reward) as u64,
                outcome.terminated.into(),
                ball.0,
                ball.1,
                trail.0,
                trail.1,
                paddle,
            ];
            let expected: Vec<u64> = row.as_array().unwrap()[..7].iter().map(number).collect();
            assert_eq!(got[..], expected, "{name}");
            assert_eq!(bricks, row[8].as_str().unwrap(), "{name}");
            steps += 1;
            // Steps after the end are not ours to play: the trait forbids them.
            if outcome.terminated {
                ends += 1;
                break;
            }
        }
    }
    assert!(steps > 900 && ends == 4, "{steps} steps, {ends} ends");
}
