//! The state of the partitions, in one of two layouts.

use std::ops::ControlFlow;

use millpond_storage::{
    encoding::EncodedRows,
    state_table::{PointTable, RangeTable, StateTable},
};

use super::{
    packed::Entry,
    rank::{Counter, Window},
    touched::Bound,
};
use crate::{error::Result, operator::multiplicity};

/// Rows of a partition that are packed into one value, at most.
pub(super) const MAX_PACKED_ROWS: u64 = 64;

/// See the module.
pub(super) enum Partitions {
    /// The first few rows of each partition, packed: nothing is ever deleted, so no other row can come to the front.
    Packed(Box<PointTable>),
    /// All rows that may ever be among the first.
    Ordered(Box<RangeTable>),
}

impl Partitions {
    /// Brings what is needed of some partitions into memory.
    pub(super) fn load(&mut self, partitions: &EncodedRows) -> Result<()> {
        match self {
            Partitions::Packed(table) => Ok(table.load(partitions)?),
            Partitions::Ordered(table) => Ok(table.load(partitions)?),
        }
    }

    /// The rows of a partition that the window is about, as a packed list, and the bound behind which a new row makes no difference.
    pub(super) fn head(&self, partition: &[u8], window: &Window, list: &mut Vec<u8>) -> Result<Bound> {
        list.clear();
        let table = match self {
            Partitions::Packed(table) => {
                list.extend_from_slice(table.get(partition).unwrap_or_default());
                return Ok(Bound::None);
            }
            Partitions::Ordered(table) => table,
        };
        let mut counter = Counter::default();
        let mut last = Vec::new();
        let mut failed = None;
        table.scan(partition, None, usize::MAX, &mut |key, value| {
            let (copies, exact) = multiplicity::read(value);
            let Some(copies) = u64::try_from(copies).ok().filter(|copies| *copies > 0) else { return ControlFlow::Continue(()) };
            match window.count(&mut counter, key, copies) {
                Ok(true) => {
                    Entry { key, copies, exact }.write(list);
                    last.clear();
                    last.extend_from_slice(key);
                    if window.ends_with(&counter) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
                Ok(false) => ControlFlow::Break(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        match failed {
            Some(error) => Err(error),
            None if window.is_full(&counter) && !last.is_empty() => Ok(Bound::After(last.into())),
            None => Ok(Bound::None),
        }
    }

    /// Removes the rows behind the last of a full list.
    pub(super) fn prune(&mut self, partition: &[u8], last: &[u8]) -> Result<()> {
        let Partitions::Ordered(table) = self else { return Ok(()) };
        let mut beyond = EncodedRows::new();
        table.scan(partition, Some(last), usize::MAX, &mut |key, _| {
            beyond.push(key);
            ControlFlow::Continue(())
        })?;
        beyond.iter().for_each(|key| table.delete(partition, key));
        Ok(())
    }

    /// Removes a partition.
    pub(super) fn remove(&mut self, partition: &[u8]) -> Result<()> {
        match self {
            Partitions::Packed(table) => table.delete(partition),
            Partitions::Ordered(table) => table.delete_prefix(partition)?,
        }
        Ok(())
    }

    pub(super) fn table(&mut self) -> &mut dyn StateTable {
        match self {
            Partitions::Packed(table) => &mut **table,
            Partitions::Ordered(table) => &mut **table,
        }
    }
}

/// Adds one copy of a row to an ordered partition, or takes one away.
pub(super) fn change(table: &mut RangeTable, partition: &[u8], key: &[u8], exact: &[u8], sign: i64, value: &mut Vec<u8>) -> Result<()> {
    let copies = match table.get(partition, key)? {
        Some(stored) => {
            let (copies, stored_exact) = multiplicity::read(&stored);
            multiplicity::write(copies + sign, stored_exact, value);
            copies + sign
        }
        None => {
            multiplicity::write(sign, exact, value);
            sign
        }
    };
    if copies == 0 {
        table.delete(partition, key);
    } else {
        table.put(partition, key, value);
    }
    Ok(())
}
