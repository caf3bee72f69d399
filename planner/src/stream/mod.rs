//! From an analyzed logical plan to the dataflow graph that maintains it: optimize, lower to operators with their properties (changelog
//! kind, stream key, watermark columns, distribution), decide what closes windows, and cut into fragments.

mod changelog;
pub(crate) mod columns;
pub(crate) mod distribution;
pub(crate) mod node;
pub(crate) mod properties;
mod relations;
mod stream_key;
mod supported;
#[cfg(test)]
mod tests;
pub(crate) mod time_bounds;
mod view;
mod watermark;
mod window_close;

pub use relations::{StreamRelation, StreamRelations};
pub use view::{Joins, Root, StreamPlan, ViewOptions, plan_view};
