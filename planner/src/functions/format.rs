//! `to_char` and its like.

use super::signature::Entry;

pub(super) const FUNCTIONS: &[Entry] = &[];
