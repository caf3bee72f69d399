//! Functions about the session and the catalog.

use super::signature::Entry;

pub(super) const FUNCTIONS: &[Entry] = &[];
