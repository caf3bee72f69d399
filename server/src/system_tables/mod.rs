//! The relations that show the server itself: `pg_catalog` and `information_schema` as Postgres clients expect them, and `millpond` with
//! jobs, checkpoints, sources and refused rows. What they show comes from the catalog and the engine at the moment of the query; what never
//! changes (types, functions, operators) comes from tables shipped with `datafusion-pg-catalog`.

pub(crate) mod information_schema;
pub(crate) mod millpond;
pub(crate) mod numbers;
pub(crate) mod pg_activity;
pub(crate) mod pg_catalog;
pub(crate) mod pg_constraints;
pub(crate) mod pg_foreign;
pub(crate) mod pg_functions;
pub(crate) mod pg_views;
pub(crate) mod registry;
pub(crate) mod rows;
