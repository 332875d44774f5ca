//! Converts a store specification from Python.

use proto::{StoreSpec, convert, v1};
use pyo3::prelude::*;
use replay::TableOptions;

use crate::error::invalid;

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Store {
    bytes_max: u64,
    stack: u32,
    frame_bytes: u32,
    codec: String,
    actions: u32,
    max_length: u32,
    tables: Vec<Table>,
}

#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Table {
    name: String,
    capacity: u64,
    sampler: String,
    remover: String,
    max_times_sampled: u32,
    priority_exponent: f64,
    priority_constant: f64,
    first_priority: f64,
}

impl Store {
    /// Validates everything that does not depend on the shard.
    pub fn spec(self) -> PyResult<StoreSpec> {
        let Self { bytes_max, stack, frame_bytes, codec, actions, max_length, tables } = self;
        let tables = tables.into_iter().map(Table::message).collect();
        let message = v1::Store { bytes_max, stack, frame_bytes, codec, actions, tables, max_length };
        convert::store(message).map_err(invalid)
    }
}

impl Table {
    fn message(self) -> v1::Table {
        v1::Table {
            name: self.name,
            capacity: self.capacity,
            sampler: self.sampler,
            remover: self.remover,
            max_times_sampled: self.max_times_sampled,
            priority_exponent: self.priority_exponent,
            priority_constant: self.priority_constant,
            first_priority: self.first_priority,
        }
    }
}

/// The index of the table with this name; 0 without a name.
pub fn index(tables: &[TableOptions], name: Option<&str>) -> PyResult<usize> {
    let Some(name) = name else { return Ok(0) };
    tables.iter().position(|table| table.name == name).ok_or_else(|| {
        let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        invalid(format!("no table {name:?}; this shard has {}", names.join(", ")))
    })
}
