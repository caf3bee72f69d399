//! Formats: bytes of files and messages <-> columns.
//!
//! Decoding of text formats has two steps. A *scanner* ([`csv`], [`json`]) finds where each wanted value of each row lies in a block of text and
//! writes down spans; [`cells`] then builds one typed column at a time from them, with the scalar parsers of [`scalar`]. Text columns
//! share the block as their data buffer: nothing is copied.
//!
//! A row that cannot be decoded is never an error of the block: it is left out and reported with its text and reason.

pub mod block;
pub mod cell_lists;
pub mod cells;
pub mod csv;
pub mod csv_write;
pub mod decode;
pub mod json;
pub mod json_scan;
pub mod json_write;
pub mod jsonb;
pub mod parquet;
pub mod scalar;
pub mod text;
pub mod timestamp;
