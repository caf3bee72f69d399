//! sql-tests
