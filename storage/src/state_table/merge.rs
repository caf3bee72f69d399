//! A full pass over a table: entries in memory over those in the store.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::{Bound, ControlFlow};

use super::VisitFn;
use super::context::{KEY_PREFIX_BYTES, TableContext};
use crate::error::Result;
use crate::state_store::StateStore;

/// An entry in memory: key group, key, value; no value is a deletion.
type Entry<'a> = (u16, &'a [u8], Option<&'a [u8]>);

/// Visits the entries of all key groups of the table in key order. `in_memory` is in order too, and decides where both have a key.
pub(super) fn merge_with_store<'a>(
    context: &TableContext,
    store: Option<&dyn StateStore>,
    in_memory: &mut dyn Iterator<Item = Entry<'a>>,
    visit: &mut VisitFn<'_>,
) -> Result<()> {
    let mut memory = in_memory.peekable();
    let mut outcome = Ok(ControlFlow::Continue(()));
    if let Some(store) = store {
        for group in context.groups() {
            let (from, to) = context.group_range(group);
            let bounds = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            store.scan_with(bounds, false, &mut |full_key, value| {
                outcome = merge_one(&mut memory, group, &full_key[KEY_PREFIX_BYTES..], value, visit);
                if matches!(outcome, Ok(ControlFlow::Continue(()))) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            if std::mem::replace(&mut outcome, Ok(ControlFlow::Continue(())))?.is_break() {
                return Ok(());
            }
        }
    }
    for (_, key, value) in memory {
        if let Some(value) = value
            && visit(key, value)?.is_break()
        {
            break;
        }
    }
    Ok(())
}

/// Visits what memory has before the stored entry, then the entry itself unless memory has another version of it.
fn merge_one<'a>(
    memory: &mut Peekable<&mut dyn Iterator<Item = Entry<'a>>>,
    group: u16,
    key: &[u8],
    value: &[u8],
    visit: &mut VisitFn<'_>,
) -> Result<ControlFlow<()>> {
    while let Some((memory_group, memory_key, memory_value)) = memory.peek().copied() {
        let place = (memory_group, memory_key).cmp(&(group, key));
        if place == Ordering::Greater {
            break;
        }
        memory.next();
        if let Some(memory_value) = memory_value
            && visit(memory_key, memory_value)?.is_break()
        {
            return Ok(ControlFlow::Break(()));
        }
        if place == Ordering::Equal {
            return Ok(ControlFlow::Continue(()));
        }
    }
    visit(key, value)
}
