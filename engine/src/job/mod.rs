//! Jobs: one running dataflow each, maintaining one view or feeding one sink.
//!
//! A job is a [`driver`] that injects barriers, collects what its subtasks report, seals epochs into the job's collection and completes
//! checkpoints. Jobs are linked only through collections: a driver waits for what its upstreams have sealed and never holds them back.

mod attempt;
mod checkpoint;
pub mod collector;
pub mod driver;
mod failure;
pub mod inputs;
pub mod recovery;
pub mod running;
pub mod sink_driver;
pub mod spec;
mod start;
pub mod status;
pub mod stops;

#[cfg(test)]
mod tests;
