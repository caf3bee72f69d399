//! INSERT, UPDATE, DELETE, TRUNCATE and COPY FROM: changes of tables.

mod bag;
pub(crate) mod changes;
mod keyed;
pub(crate) mod reads;
pub(crate) mod table_change;
pub(crate) mod target;
pub(crate) mod work;
