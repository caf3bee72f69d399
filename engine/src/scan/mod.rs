//! Scans: the leaves of a dataflow. A scan's reader is a task of its own that feeds one channel of the subtask, so that decoding overlaps with
//! the operators, and barriers reach the subtask as on any other edge.

pub mod collection;
pub mod gate;
pub mod place;
mod rest;
pub mod source;
pub mod values;
