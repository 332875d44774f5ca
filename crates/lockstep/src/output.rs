//! Lines for people, as everywhere.

pub use run::output::{note, say};
