//! The integration tests, in one binary.

mod damage;
mod fuzz;
mod observe;
mod process;
mod slt;
mod tidy;
mod wire;
mod wire_extended;
