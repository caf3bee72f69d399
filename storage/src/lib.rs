//! Durable state: bytes, tables and epochs; no operators.

pub mod epoch;
pub mod error;
