//! JSON.

use super::signature::Entry;

pub(super) const FUNCTIONS: &[Entry] = &[];
