//! The integration tests, in one binary.

mod alter;
mod damage;
mod damage_every_file;
mod damage_sources;
mod disk_full;
mod failures;
mod fuzz;
mod join_order;
mod kills;
mod objects;
mod observe;
mod planning;
mod process;
mod psql;
mod readme;
mod slt;
mod store_trouble;
mod streaming;
mod task_local;
mod tidy;
mod timeouts;
mod wire;
mod wire_extended;
