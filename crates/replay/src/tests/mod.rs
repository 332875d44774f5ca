//! Tests of the store as a whole. `bounds` is about work and numbers, `claims` are small stories, `model` runs the store against a
//! naive one, `saving` is about bytes, `crashes` about files, `hostile` about forged ones. All of them write through
//! `writer`.

mod bounds;
mod claims;
mod contents;
mod crashes;
mod hostile;
mod model;
mod naive;
mod reliability;
mod saving;
mod writer;
