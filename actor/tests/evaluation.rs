//! Evaluation games.

use actor::evaluation::{EvaluationGames, PlayerKind, play};
use agents::{Architecture, Behaviour, QNetwork};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use settings::Settings;

#[test]
fn scores_depend_on_the_games_and_not_on_the_number_of_threads() {
    tch::set_num_threads(1);
    let settings = Settings {
        network: settings::networks::MLP,
        hidden_units: 16,
        frame_stack: 1,
        frame_skip: 1,
        ..Settings::paper()
    };
    let options = settings.environment();
    let spec = envs::make("cartpole", &options, 0).unwrap().spec().clone();
    let agent = agents::agent(&settings);
    let architecture = Architecture::new(&settings, &*agent, &spec).unwrap();
    let network =
        QNetwork::random(architecture, agents::Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1)).unwrap();
    let scores = |player, threads, seed| {
        let games = EvaluationGames {
            game: "cartpole",
            options: &options,
            stack: 1,
            press_fire: false,
            seed,
            threads,
        };
        let mut watched = Vec::new();
        let scores = play(player, &games, 11, |ended| watched.push(ended)).unwrap();
        assert_eq!(watched, (1..=11).collect::<Vec<_>>());
        scores
    };
    let trained = PlayerKind::Agent(&*agent, &network, Behaviour::Policy { epsilon: 0.1 });
    for player in [trained, PlayerKind::Random, PlayerKind::Constant(0)] {
        let alone = scores(player, 1, 5);
        assert_eq!(scores(player, 3, 5), alone);
        assert_eq!(scores(player, 64, 5), alone);
        assert_ne!(scores(player, 1, 6), alone);
    }
}
