//! Durable state: bytes, tables and epochs; no operators.

pub mod catalog_log;
pub mod collection;
mod durable_file;
pub mod encoding;
pub mod env;
pub mod epoch;
pub mod epoch_log;
pub mod error;
mod frame_file;
pub mod key_group;
pub mod lock;
pub mod memory;
pub mod rocks;
pub mod signed_batch;
pub mod state_store;
