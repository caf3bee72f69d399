//! The integration tests, in one binary.

mod fuzz;
mod kills;
mod process;
mod slt;
mod streaming;
mod tidy;
mod wire;
mod wire_extended;
