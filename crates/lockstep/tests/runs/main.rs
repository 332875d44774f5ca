//! Whole runs of the real program: learning, repeating, being killed, finding damage.

mod faults;
mod harness;
mod learning;
mod repeating;
