//! A tabular transition in a file: one row holds all that its target and its metrics were computed from.

use envs::grid::ACTIONS;

use crate::experience::{Experience, TableStep};

/// Names of the columns of [`row`].
pub fn header() -> Vec<String> {
    let first = ["variant", "seed", "episode", "step", "temperature", "alpha", "terminal_mask"];
    let moved = ["state", "action", "reward", "next_state", "terminated"];
    let values = |prefix| (0..ACTIONS.len()).map(move |action| format!("{prefix}_{action}"));
    let names = first.into_iter().chain(moved).map(str::to_owned);
    names.chain(values("q")).chain(values("next_q")).chain(Experience::METRICS.map(str::to_owned)).collect()
}

/// An experience as text; numbers read back to the last bit. A network's has no numbered states, and its cells of these
/// columns are empty, as are those of actions that it does not have.
pub fn row(experience: &Experience) -> Vec<String> {
    let Experience { trial, step, rule, rate, action, reward, q, table, .. } = experience;
    let table = table.as_ref();
    let cell = |text: fn(&TableStep) -> String| table.map(text).unwrap_or_default();
    let padded = |q: &[f64]| -> Vec<String> {
        (0..ACTIONS.len()).map(|action| q.get(action).map(f64::to_string).unwrap_or_default()).collect()
    };
    let first = cells![
        cell(|table| table.variant.to_owned()),
        trial,
        cell(|table| table.episode.to_string()),
        step,
        rule.temperature(),
        rate,
        cell(|table| u8::from(table.terminal_mask).to_string()),
        cell(|table| table.state.to_string()),
        action,
        reward,
        cell(|table| table.next_state.to_string()),
        cell(|table| u8::from(table.terminated).to_string()),
    ];
    let next_q = table.map_or(&[][..], |table| &table.next_q);
    [first, padded(q), padded(next_q), experience.metric_cells()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experience::Rule;
    use crate::maze::{Runs, Setup};

    #[test]
    fn a_row_alone_is_enough_to_replay_it() {
        let mut checked = 0;
        Runs::learn(Setup::main(Rule::Soft(0.01)), 1, 3, |experience| {
            let row = row(&experience);
            let header = header();
            assert_eq!(row.len(), header.len());
            let cell = |name: &str| &row[header.iter().position(|column| column == name).unwrap()];
            let numbers = |names: [&str; 4]| names.map(|name| cell(name).parse::<f64>().unwrap());
            let next = Rule::Soft(0.01).value(&numbers(["next_q_0", "next_q_1", "next_q_2", "next_q_3"]));
            let q = numbers(["q_0", "q_1", "q_2", "q_3"]);
            let [reward, alpha, target, td] = numbers(["reward", "alpha", "target", "td"]);
            assert_eq!(reward + 0.99 * next, target);
            assert_eq!(alpha * (target - q[cell("action").parse::<usize>().unwrap()]), td);
            checked += 1;
        });
        assert!(checked > 500, "{checked}");
    }

    #[test]
    fn an_experience_of_a_network_leaves_the_columns_of_a_table_empty() {
        let experience = Experience::new(Rule::Soft(0.5), (7, 9), &[1.0, 2.0], (1, 1.0), 3.0, 1.0);
        let row = row(&experience);
        let joined = row[..20].join(",");
        assert_eq!(joined, ",7,,9,0.5,1,,,1,1,,,1,2,,,,,,");
        assert_eq!(row.len(), header().len());
    }
}
