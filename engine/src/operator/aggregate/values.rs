//! The multisets behind `DISTINCT`, `min`, `max` and ordered aggregates: how often each value occurs in its group.
//!
//! Table: group key -> (set number, key encoding of the value) -> counts, one per filter under which the value is counted. Calls with the
//! same arguments share a set of distinct values. The changes of a chunk are netted per value first, so that a value is looked up once.

use arrow::{
    array::{Array, ArrayRef, UInt32Array},
    buffer::BooleanBuffer,
    compute::take,
};
use hashbrown::HashTable;
use millpond_storage::{
    encoding::{EncodedRows, key::KeyCodec},
    state_table::RangeTable,
};

use std::{hash::BuildHasher, ops::ControlFlow};

use super::groups::Groups;
use crate::{
    accumulator::{
        CallState, Entries, Rows,
        bytes::{get_i64, put_integer},
    },
    error::{EngineError, Result},
};

/// Entries read at a time while looking for the head of a set.
const SCAN_PAGE: usize = 64;

/// What a set is kept for.
pub(super) enum Purpose {
    /// The head for this call.
    Extreme(usize),
    /// All values for this call.
    Ordered(usize),
    /// Calls that count each value once.
    Distinct(Vec<DistinctCall>),
}

/// A call over distinct values.
#[derive(Clone, Copy)]
pub(super) struct DistinctCall {
    pub(super) call: usize,
    /// Number of its filter in the set.
    pub(super) filter: usize,
    /// Its argument, an input column.
    pub(super) argument: usize,
}

/// One set per group.
pub(super) struct ValueSet {
    pub(super) codec: KeyCodec,
    /// Input columns that the codec encodes.
    pub(super) columns: Vec<usize>,
    /// Filters under which values are counted, as input columns.
    pub(super) filters: Vec<Option<usize>>,
    /// Rows with a NULL in one of these input columns do not count.
    pub(super) skip_nulls_of: Vec<usize>,
    pub(super) purpose: Purpose,
}

/// See the module.
pub(super) struct Values {
    pub(super) table: RangeTable,
    sets: Vec<ValueSet>,
    append_only: bool,
    net: Net,
}

/// A chunk, as the sets see it.
pub(super) struct ChunkRows<'a> {
    pub(super) columns: &'a [ArrayRef],
    pub(super) slots: &'a [u32],
    pub(super) signs: Option<&'a [i8]>,
    /// Rows that pass each filter column.
    pub(super) filters: &'a [(usize, BooleanBuffer)],
    /// Groups of the chunk, each once.
    pub(super) groups: &'a [u32],
}

impl ChunkRows<'_> {
    /// The rows that pass a filter; `None` for all.
    pub(super) fn selected(&self, filter: Option<usize>) -> Option<&BooleanBuffer> {
        let filter = filter?;
        self.filters.iter().find(|(column, _)| *column == filter).map(|(_, rows)| rows)
    }
}

/// Net changes of a chunk by (group, value).
#[derive(Default)]
struct Net {
    index: HashTable<u32>,
    hasher: hashbrown::DefaultHashBuilder,
    /// (hash, slot, first row with the value).
    entries: Vec<(u64, u32, u32)>,
    /// One change per entry and filter.
    deltas: Vec<i64>,
}

/// Values that have become present in, or absent from, a set of distinct values, for one filter.
#[derive(Default)]
struct Transitions {
    rows: Vec<u32>,
    slots: Vec<u32>,
    signs: Vec<i8>,
}

impl Net {
    fn collect(&mut self, set: &ValueSet, encoded: &EncodedRows, chunk: &ChunkRows<'_>) {
        self.index.clear();
        self.entries.clear();
        self.deltas.clear();
        let width = set.filters.len();
        let nulls: Vec<_> = set.skip_nulls_of.iter().filter_map(|column| chunk.columns[*column].logical_nulls()).collect();
        for (number, filter) in set.filters.iter().enumerate() {
            let mut selected = chunk.selected(*filter).cloned();
            for nulls in nulls.iter().map(|nulls| nulls.inner()) {
                selected = Some(selected.map_or_else(|| nulls.clone(), |selected| &selected & nulls));
            }
            let rows = Rows { slots: chunk.slots, signs: chunk.signs, selected: selected.as_ref() };
            rows.for_each(None, |row, slot, sign| {
                let entry = self.entry(encoded, row, slot as u32, width);
                self.deltas[entry * width + number] += sign;
            });
        }
    }

    #[inline]
    fn entry(&mut self, encoded: &EncodedRows, row: usize, slot: u32, width: usize) -> usize {
        let value = encoded.row(row);
        let hash = self.hasher.hash_one((slot, value));
        let entries = &self.entries;
        let equal = |entry: &u32| {
            let (other_hash, other_slot, other_row) = entries[*entry as usize];
            other_hash == hash && other_slot == slot && encoded.row(other_row as usize) == value
        };
        if let Some(entry) = self.index.find(hash, equal) {
            return *entry as usize;
        }
        let entry = entries.len();
        self.index.insert_unique(hash, entry as u32, |entry| entries[*entry as usize].0);
        self.entries.push((hash, slot, row as u32));
        self.deltas.resize((entry + 1) * width, 0);
        entry
    }
}

impl Values {
    pub(super) fn new(table: RangeTable, sets: Vec<ValueSet>, append_only: bool) -> Self {
        Self { table, sets, append_only, net: Net::default() }
    }

    /// Takes the changes of a chunk into the sets, and what they mean into the calls.
    pub(super) fn update(&mut self, groups: &mut Groups, chunk: &ChunkRows<'_>) -> Result<()> {
        let prefixes: EncodedRows = chunk.groups.iter().map(|slot| groups.map.key(*slot)).collect();
        self.table.load(&prefixes)?;
        for number in 0..self.sets.len() {
            let set = &self.sets[number];
            let columns: Vec<ArrayRef> = set.columns.iter().map(|column| chunk.columns[*column].clone()).collect();
            let encoded = set.codec.encode(&columns)?;
            self.net.collect(set, &encoded, chunk);
            self.apply(number, groups, &encoded, chunk)?;
        }
        Ok(())
    }

    fn apply(&mut self, number: usize, groups: &mut Groups, encoded: &EncodedRows, chunk: &ChunkRows<'_>) -> Result<()> {
        let width = self.sets[number].filters.len();
        // Without deletions a distinct value, once there, stays: its counts need not go on.
        let presence = self.append_only && matches!(self.sets[number].purpose, Purpose::Distinct(_));
        let mut transitions: Vec<Transitions> = (0..width).map(|_| Transitions::default()).collect();
        let mut headless = Vec::new();
        let (mut before, mut after) = (vec![0; width], vec![0; width]);
        let (mut suffix, mut bytes) = (Vec::new(), Vec::new());
        for entry in 0..self.net.entries.len() {
            let (_, slot, row) = self.net.entries[entry];
            let deltas = &self.net.deltas[entry * width..(entry + 1) * width];
            if deltas.iter().all(|delta| *delta == 0) {
                continue;
            }
            let value = encoded.row(row as usize);
            let key = groups.map.key(slot);
            suffix.clear();
            suffix.push(number as u8);
            suffix.extend_from_slice(value);
            read_counts(self.table.get(key, &suffix)?.as_deref(), &mut before)?;
            for ((after, before), delta) in after.iter_mut().zip(&before).zip(deltas) {
                *after = if presence { i64::from(*before > 0 || *delta > 0) } else { before + delta };
            }
            if before == after {
                continue;
            }
            write_counts(&mut self.table, key, &suffix, &after, &mut bytes);
            match &self.sets[number].purpose {
                Purpose::Ordered(_) => {}
                Purpose::Extreme(call) => {
                    let CallState::Extreme(extreme) = &mut groups.calls[*call] else { return Err(misplaced()) };
                    if after[0] > 0 {
                        extreme.offer(slot, value);
                    } else if extreme.head(slot) == Some(value) {
                        headless.push(slot);
                    }
                }
                Purpose::Distinct(_) => {
                    for (filter, transitions) in transitions.iter_mut().enumerate() {
                        if (before[filter] > 0) != (after[filter] > 0) {
                            transitions.rows.push(row);
                            transitions.slots.push(slot);
                            transitions.signs.push(if after[filter] > 0 { 1 } else { -1 });
                        }
                    }
                }
            }
        }
        match &self.sets[number].purpose {
            Purpose::Ordered(_) => Ok(()),
            Purpose::Extreme(call) => self.find_heads(number, *call, &headless, groups),
            Purpose::Distinct(calls) => pass_on(calls, &transitions, groups, chunk),
        }
    }

    /// Looks up the heads of groups that have lost theirs.
    fn find_heads(&self, number: usize, call: usize, slots: &[u32], groups: &mut Groups) -> Result<()> {
        for slot in slots {
            let mut head = None;
            self.scan(number, groups.map.key(*slot), 1, |value, _| head = Some(value.to_vec()))?;
            let CallState::Extreme(extreme) = &mut groups.calls[call] else { return Err(misplaced()) };
            extreme.set_head(*slot, head.as_deref());
        }
        Ok(())
    }

    /// Calls `f` with up to `limit` present values of a group's set, in order, and their counts.
    fn scan(&self, number: usize, key: &[u8], limit: usize, mut f: impl FnMut(&[u8], i64)) -> Result<()> {
        let mut place = vec![number as u8];
        let mut found = 0;
        let mut failed = None;
        loop {
            let (mut seen, mut ended) = (0, false);
            let mut last = Vec::new();
            let page = limit.saturating_sub(found).clamp(1, SCAN_PAGE);
            self.table.scan(key, Some(&place), page, &mut |suffix, bytes| {
                seen += 1;
                if suffix.first() != Some(&(number as u8)) || found >= limit {
                    ended = true;
                    return ControlFlow::Break(());
                }
                match get_i64(&mut &*bytes) {
                    Ok(count) if count > 0 => {
                        f(&suffix[1..], count);
                        found += 1;
                    }
                    Ok(_) => {}
                    Err(error) => failed = Some(error),
                }
                last.clear();
                last.extend_from_slice(suffix);
                ControlFlow::Continue(())
            })?;
            if let Some(error) = failed {
                return Err(error);
            }
            if ended || found >= limit || seen < page {
                return Ok(());
            }
            place = last;
        }
    }

    /// Computes the results of an ordered call: for the sets of groups `from`, into the slots `to`.
    fn compute_ordered(&self, number: usize, call: usize, from: &[u32], to: &[u32], groups: &mut Groups) -> Result<()> {
        let needed = match &groups.calls[call] {
            CallState::Ordered(ordered) => ordered.entries_needed(),
            CallState::Summary(_) | CallState::Extreme(_) => return Err(misplaced()),
        };
        let mut entries = Entries::default();
        for slot in from {
            let before = entries.counts.len();
            self.scan(number, groups.map.key(*slot), needed, |value, count| {
                entries.values.push(value);
                entries.counts.push(count as usize);
            })?;
            entries.lengths.push(entries.counts.len() - before);
        }
        match &mut groups.calls[call] {
            CallState::Ordered(ordered) => ordered.compute(to, &entries),
            CallState::Summary(_) | CallState::Extreme(_) => Err(misplaced()),
        }
    }

    /// Computes the results of all ordered calls: for the groups `from`, into the slots `to`.
    pub(super) fn compute_all_ordered(&mut self, from: &[u32], to: &[u32], groups: &mut Groups) -> Result<()> {
        let prefixes: EncodedRows = from.iter().map(|slot| groups.map.key(*slot)).collect();
        self.table.load(&prefixes)?;
        for (number, set) in self.sets.iter().enumerate() {
            if let Purpose::Ordered(call) = set.purpose {
                self.compute_ordered(number, call, from, to, groups)?;
            }
        }
        Ok(())
    }

    /// Whether any call needs its values in order.
    pub(super) fn has_ordered(&self) -> bool {
        self.sets.iter().any(|set| matches!(set.purpose, Purpose::Ordered(_)))
    }

    /// Removes all sets of a group.
    pub(super) fn delete_group(&mut self, key: &[u8]) -> Result<()> {
        Ok(self.table.delete_prefix(key)?)
    }
}

/// Gives the calls their values that have become present or absent.
fn pass_on(calls: &[DistinctCall], transitions: &[Transitions], groups: &mut Groups, chunk: &ChunkRows<'_>) -> Result<()> {
    for DistinctCall { call, filter, argument } in calls {
        let Transitions { rows, slots, signs } = &transitions[*filter];
        if rows.is_empty() {
            continue;
        }
        let rows_of = UInt32Array::from(rows.clone());
        let CallState::Summary(accumulator) = &mut groups.calls[*call] else { return Err(misplaced()) };
        let argument = take(&chunk.columns[*argument], &rows_of, None)?;
        accumulator.update(&Rows { slots, signs: Some(signs), selected: None }, &[argument])?;
    }
    Ok(())
}

fn read_counts(bytes: Option<&[u8]>, counts: &mut [i64]) -> Result<()> {
    match bytes {
        None => counts.fill(0),
        Some(mut bytes) => counts.iter_mut().try_for_each(|count| get_i64(&mut bytes).map(|read| *count = read))?,
    }
    Ok(())
}

fn write_counts(table: &mut RangeTable, key: &[u8], suffix: &[u8], counts: &[i64], bytes: &mut Vec<u8>) {
    if counts.iter().all(|count| *count == 0) {
        table.delete(key, suffix);
        return;
    }
    bytes.clear();
    counts.iter().for_each(|count| put_integer(bytes, (*count).into()));
    table.put(key, suffix, bytes);
}

fn misplaced() -> EngineError {
    EngineError::Internal("an aggregate call and its set of values do not fit".into())
}
