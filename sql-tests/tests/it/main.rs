//! The integration tests, in one binary.

mod alter;
mod damage;
mod fuzz;
mod kills;
mod observe;
mod process;
mod psql;
mod slt;
mod streaming;
mod tidy;
mod wire;
mod wire_extended;
