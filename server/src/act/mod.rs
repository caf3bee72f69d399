//! What is done for each kind of statement.

pub(crate) mod copy;
pub(crate) mod cursor;
pub(crate) mod ddl;
pub(crate) mod define_source;
pub(crate) mod definitions;
pub(crate) mod dml;
pub(crate) mod explain;
pub(crate) mod maintenance;
pub(crate) mod prepare;
pub(crate) mod read;
pub(crate) mod select;
pub(crate) mod settings;
pub(crate) mod show;
pub(crate) mod transaction;
