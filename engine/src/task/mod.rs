//! Subtasks: one parallel instance of a fragment, and the loop that drives it.
//!
//! The loop owns the protocol: it receives, aligns barriers, takes watermark minima, calls the operators, forwards their output, snapshots
//! their state. Operators are synchronous callbacks and know nothing of it.

pub mod align;
pub mod build;
mod closing;
pub mod cut;
mod determinants;
pub mod fault;
mod flow;
mod inputs;
pub mod operators;
pub mod orders;
mod pace;
pub mod restart;
pub mod revival;
mod sending;
mod sent;
pub mod subtask;
pub mod watermark;

#[cfg(test)]
mod tests;
