//! Functions, operators, casts and aggregates with Postgres' types, results and errors.
//!
//! A function is a row of a table: its signature as text, `lower(text) text`, and what computes it ([`signature::Body`]). Operators are
//! functions named by their symbol. The binder picks an overload by Postgres' rules ([`resolve`]), casts the arguments and emits a scalar
//! function of DataFusion's ([`kernel`]), so that a view and a batch query evaluate the same code over columns.
//!
//! Errors of values are [`crate::error::PlanError`] inside of `DataFusionError::External`.

pub mod aggregate;
mod arithmetic;
pub(crate) mod array;
mod bits;
mod bytes;
pub(crate) mod cast;
pub mod clock;
pub(crate) mod columns;
pub(crate) mod comparison;
mod conditional;
mod datetime;
pub(crate) mod decimal;
mod decimal_power;
mod dimensions;
pub mod environment;
pub(crate) mod exact_sum;
mod extract;
mod float;
mod format;
mod identifier;
mod interval;
mod json;
pub(crate) mod kernel;
pub mod listing;
mod math;
mod pattern;
pub(crate) mod quantified;
mod regex;
mod regex_matches;
pub(crate) mod registry;
pub(crate) mod resolve;
pub(crate) mod row_key;
pub(crate) mod sequence;
pub mod session;
pub(crate) mod signature;
pub mod system;
mod text;
pub mod window;

pub use environment::Environment;
pub use session::session_state;
