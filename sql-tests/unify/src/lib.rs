//! Depends on every foreign crate of the workspace and holds nothing.
//!
//! Cargo builds a dependency with the features that the *selected* packages ask for. With this package selected beside another one
//! (`cargo test -p millpond-storage -p millpond-unify`), they are those of the whole workspace, and nothing is compiled twice.
