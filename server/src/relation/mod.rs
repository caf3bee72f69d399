//! Relations as DataFusion reads them: tables and views at an epoch, sources up to what is bound.

pub(crate) mod contents;
pub(crate) mod key_filter;
pub(crate) mod left_out;
pub(crate) mod provider;
pub(crate) mod resolve;
pub(crate) mod source;
pub(crate) mod system;
