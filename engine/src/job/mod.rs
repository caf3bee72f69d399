//! Jobs: one running dataflow each, maintaining one view or feeding one sink.
//!
//! A job is a [`driver`] that injects barriers, collects what its subtasks report, seals epochs into the job's collection and completes
//! checkpoints. Jobs are linked only through collections: a driver waits for what its upstreams have sealed and never holds them back.

mod attempt;
mod beginning;
mod checkpoint;
pub mod collector;
mod completion;
pub mod driver;
mod failure;
pub mod inputs;
mod life;
pub mod recovery;
mod renewal;
pub mod rescale;
pub mod running;
mod seal;
pub mod sink_driver;
pub mod spec;
pub mod status;
pub mod stops;
mod task_local;
mod waits;

#[cfg(test)]
mod tests;
