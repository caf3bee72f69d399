//! Statements that change rows.

mod conflict;
mod copy;
mod delete;
mod insert;
mod returning;
mod target;
mod update;
