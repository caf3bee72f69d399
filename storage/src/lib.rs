//! Durable state: bytes, tables and epochs; no operators.

pub mod catalog_log;
pub mod checkpoint;
pub mod collection;
mod durable_file;
pub mod encoding;
pub mod env;
pub mod epoch;
pub mod epoch_log;
pub mod error;
pub mod foreign_files;
mod frame_file;
pub mod key_group;
pub mod lock;
pub mod memory;
pub mod object;
pub mod rocks;
pub mod signed_batch;
mod state_changelog;
pub mod state_store;
pub mod state_table;
