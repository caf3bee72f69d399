//! Functions, operators, casts and aggregates with Postgres' types, results and errors.
//!
//! A function is a row of a table: its signature as text, `lower(text) text`, and what computes it ([`signature::Body`]). Operators are
//! functions named by their symbol. The binder picks an overload by Postgres' rules ([`resolve`]), casts the arguments and emits a scalar
//! function of DataFusion's ([`kernel`]), so that a view and a batch query evaluate the same code over columns.
//!
//! Errors of values are [`crate::error::PlanError`] inside of `DataFusionError::External`.

pub mod environment;
pub mod aggregate;
pub mod window;
pub mod session;
pub mod clock;
pub(crate) mod kernel;
pub(crate) mod columns;
pub(crate) mod signature;
pub(crate) mod resolve;
pub(crate) mod registry;
pub(crate) mod cast;
pub(crate) mod decimal;
pub(crate) mod exact_sum;
mod arithmetic;
mod bits;
pub(crate) mod comparison;
mod math;
mod text;
mod pattern;
mod regex;
mod bytes;
mod interval;
mod datetime;
mod extract;
mod format;
pub(crate) mod array;
mod json;
mod conditional;
pub mod system;
pub(crate) mod sequence;

pub use environment::Environment;
pub use session::session_state;
