//! Statements that change rows.

mod insert;
mod update;
mod delete;
mod copy;
mod conflict;
mod returning;
mod target;
