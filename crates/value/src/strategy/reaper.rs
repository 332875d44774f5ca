//! ReaPER (Pleiss et al., 2025): |TD| scaled by the reliability of its target, 1 − (TD error of the episode after the
//! item / TD error of the whole episode). The shard computes it, since it holds the episode; a new item has no
//! reliability yet and counts as 1.

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
