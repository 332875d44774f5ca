//! ReaPER (Pleiss et al., 2025): |TD| scaled by the reliability of its target, the share of the episode's TD error that is
//! resolved behind the item. The shard computes the share, since it holds the episode; a new item has nothing behind it.

use super::Definition;

pub(super) static DEFINITION: Definition = Definition {
    name: "reaper",
    about: "|TD| times the reliability of its target, a variant of ReaPER",
    title: "ReaPER",
    uses_priorities: true,
    needs_soft_policy: false,
    needs_reliability: true,
    formula: |experience| experience.td.abs() * experience.reliability.unwrap_or(1.0),
};
