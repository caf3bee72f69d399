//! INSERT, UPDATE, DELETE, TRUNCATE and COPY FROM: changes of tables.

mod bag;
pub(crate) mod changes;
pub(crate) mod fill;
pub(crate) mod insert;
mod keyed;
pub(crate) mod reads;
pub(crate) mod table_change;
pub(crate) mod target;
#[cfg(test)]
mod tests;
pub(crate) mod truncate;
pub(crate) mod update;
pub(crate) mod work;
