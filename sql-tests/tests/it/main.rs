//! The integration tests, in one binary.

mod fuzz;
mod process;
mod slt;
mod tidy;
mod wire;
mod wire_extended;
