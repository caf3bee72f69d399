//! Reading a range table: memory where it is complete, merged with the store where it is not.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};

use super::super::VisitGroupsFn;
use super::super::blocks::Loc;
use super::super::large::LargeGroup;
use super::super::packed::{self, PackedEntry};
use super::super::resident::hash_key;
use super::restore::split_key;
use super::{COMPLETE, LARGE, RangeTable, full_bounds};
use crate::error::Result;
use crate::state_store::EntryFn;

/// What memory knows of a group.
pub(super) enum Group<'a> {
    /// It has no entries.
    Absent,
    /// Everything is in the list, or everything that changed if it is not complete.
    List(Cow<'a, [u8]>, bool),
    Large(&'a LargeGroup),
}

/// A part of a group: an interval of suffixes, and what memory has of it.
struct Interval<'a> {
    list: &'a [u8],
    complete: bool,
    lower: Bound<&'a [u8]>,
    upper: Bound<&'a [u8]>,
}

impl RangeTable {
    /// The value at (`prefix`, `suffix`). One read of the store if that part of the group is not in memory.
    pub fn get(&self, prefix: &[u8], suffix: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
        let (list, complete) = match self.group(prefix) {
            Group::Absent => return Ok(None),
            Group::List(list, complete) => (list, complete),
            Group::Large(group) => {
                let segment = group.segment_of(suffix).1;
                (Cow::Borrowed(segment.list.as_slice()), segment.complete)
            }
        };
        let found = match &list {
            Cow::Borrowed(list) => packed::find(list, suffix).map(|entry| entry.is_live().then_some(Cow::Borrowed(entry.value))),
            Cow::Owned(list) => packed::find(list, suffix).map(|entry| entry.is_live().then(|| Cow::Owned(entry.value.to_vec()))),
        };
        match found {
            Ok(value) => Ok(value),
            Err(_) if complete => Ok(None),
            Err(_) => {
                let Some(store) = self.context.stored() else { return Ok(None) };
                let mut key = Vec::new();
                self.context.full_prefix(prefix, &mut key);
                key.extend_from_slice(suffix);
                let mut value = None;
                store.multi_get_sorted(&[&key], &mut |_, found| {
                    value = Some(Cow::Owned(found.to_vec()));
                    Ok(())
                })?;
                Ok(value)
            }
        }
    }

    /// Visits at most `limit` entries under `prefix` in ascending order, those after `after` if it is given.
    pub fn scan(&self, prefix: &[u8], after: Option<&[u8]>, limit: usize, f: &mut EntryFn<'_>) -> Result<()> {
        let mut visit = limited(limit, f);
        let lower = after.map_or(Bound::Unbounded, Bound::Excluded);
        match self.group(prefix) {
            _ if limit == 0 => {}
            Group::Absent => {}
            Group::List(list, complete) => {
                let interval = Interval { list: &list, complete, lower, upper: Bound::Unbounded };
                let _ = self.visit(prefix, &interval, false, &mut visit)?;
            }
            Group::Large(group) => {
                let (start, _) = group.segment_of(after.unwrap_or_default());
                let mut segments = group.segments.range((Bound::Included(start), Bound::Unbounded)).peekable();
                let mut lower = lower;
                while let Some((_, segment)) = segments.next() {
                    let next = segments.peek().map(|(next, _)| *next);
                    let upper = next.map_or(Bound::Unbounded, Bound::Excluded);
                    let interval = Interval { list: &segment.list, complete: segment.complete, lower, upper };
                    if self.visit(prefix, &interval, false, &mut visit)?.is_break() {
                        break;
                    }
                    lower = next.map_or(Bound::Unbounded, Bound::Included);
                }
            }
        }
        Ok(())
    }

    /// Visits at most `limit` entries under `prefix` in descending order, those before `before` if it is given.
    pub fn scan_back(&self, prefix: &[u8], before: Option<&[u8]>, limit: usize, f: &mut EntryFn<'_>) -> Result<()> {
        let mut visit = limited(limit, f);
        let mut upper = before.map_or(Bound::Unbounded, Bound::Excluded);
        match self.group(prefix) {
            _ if limit == 0 => {}
            Group::Absent => {}
            Group::List(list, complete) => {
                let interval = Interval { list: &list, complete, lower: Bound::Unbounded, upper };
                let _ = self.visit(prefix, &interval, true, &mut visit)?;
            }
            Group::Large(group) => {
                for (lower, segment) in group.segments.range((Bound::Unbounded, upper)).rev() {
                    let interval = Interval { list: &segment.list, complete: segment.complete, lower: Bound::Included(lower), upper };
                    if self.visit(prefix, &interval, true, &mut visit)?.is_break() {
                        break;
                    }
                    upper = Bound::Excluded(lower);
                }
            }
        }
        Ok(())
    }

    /// The entry with the lowest suffix.
    pub fn first(&self, prefix: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut first = None;
        self.scan(prefix, None, 1, &mut |suffix, value| {
            first = Some((suffix.to_vec(), value.to_vec()));
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

    /// The entry with the highest suffix.
    pub fn last(&self, prefix: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>> {
        let mut last = None;
        self.scan_back(prefix, None, 1, &mut |suffix, value| {
            last = Some((suffix.to_vec(), value.to_vec()));
            ControlFlow::Break(())
        })?;
        Ok(last)
    }

    /// Whether there is any entry under `prefix`.
    pub fn contains_prefix(&self, prefix: &[u8]) -> Result<bool> {
        let mut found = false;
        self.scan(prefix, None, 1, &mut |_, _| {
            found = true;
            ControlFlow::Break(())
        })?;
        Ok(found)
    }

    /// How many entries there are under `prefix`, if that is known without reading them.
    pub fn group_len(&self, prefix: &[u8]) -> Option<u64> {
        let hash = hash_key(prefix);
        let Some(loc) = self.groups.find(hash, prefix) else {
            if let Some(untaken) = self.untaken(hash, prefix) {
                return untaken.complete.then_some(untaken.count as u64);
            }
            return (!self.cold.may_contain(hash)).then_some(0);
        };
        let flags = self.groups.blocks().flags(loc);
        if flags & LARGE != 0 {
            self.large_group(self.large_id(loc)).len
        } else {
            (flags & COMPLETE != 0).then(|| self.groups.blocks().count(loc) as u64)
        }
    }

    /// Visits all entries (prefix, suffix, value) of all groups, in order of key group, then prefixes of equal length together. For restarts
    /// and rare full passes: one pass over the store for each group that is not in memory.
    pub fn scan_all(&self, f: &mut VisitGroupsFn<'_>) -> Result<()> {
        let mut in_memory: BTreeMap<u16, Vec<&[u8]>> = BTreeMap::new();
        for loc in self.groups.locs() {
            let prefix = self.groups.blocks().key(loc);
            in_memory.entry(self.context.group(prefix)).or_default().push(prefix);
        }
        for group in self.context.groups() {
            let mut prefixes: BTreeSet<(usize, Vec<u8>)> = BTreeSet::new();
            prefixes.extend(in_memory.remove(&group).unwrap_or_default().into_iter().map(|prefix| (prefix.len(), prefix.to_vec())));
            self.untaken_prefixes(group, &mut |prefix| {
                prefixes.insert((prefix.len(), prefix.to_vec()));
            });
            if !self.cold.is_empty() {
                self.stored_prefixes(group, &mut prefixes)?;
            }
            for (_, prefix) in &prefixes {
                let mut outcome = Ok(ControlFlow::Continue(()));
                self.scan(prefix, None, usize::MAX, &mut |suffix, value| {
                    outcome = f(prefix, suffix, value);
                    if matches!(outcome, Ok(ControlFlow::Continue(()))) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                })?;
                if outcome?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Adds the prefixes that the store has in a key group, skipping from one to the next.
    fn stored_prefixes(&self, group: u16, prefixes: &mut BTreeSet<(usize, Vec<u8>)>) -> Result<()> {
        let Some(store) = self.context.stored() else { return Ok(()) };
        let (mut from, to) = self.context.group_range(group);
        let start = from.len();
        loop {
            let mut next = None;
            let bounds = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            store.scan_with(bounds, false, &mut |key, _| {
                next = split_key(&key[start..]).map(|(prefix, _)| prefix.to_vec());
                ControlFlow::Break(())
            })?;
            let Some(prefix) = next else { return Ok(()) };
            from = self.group_bounds(&prefix).1;
            prefixes.insert((prefix.len(), prefix));
        }
    }

    pub(super) fn group(&self, prefix: &[u8]) -> Group<'_> {
        let hash = hash_key(prefix);
        if let Some(loc) = self.groups.find(hash, prefix) {
            return self.group_at(loc);
        }
        match self.untaken(hash, prefix) {
            Some(untaken) => Group::List(Cow::Owned(untaken.list), untaken.complete),
            None if self.cold.may_contain(hash) => Group::List(Cow::Borrowed(&[]), false),
            None => Group::Absent,
        }
    }

    fn group_at(&self, loc: Loc) -> Group<'_> {
        let flags = self.groups.blocks().flags(loc);
        if flags & LARGE != 0 {
            Group::Large(self.large_group(self.large_id(loc)))
        } else {
            Group::List(Cow::Borrowed(self.groups.blocks().value(loc)), flags & COMPLETE != 0)
        }
    }

    fn visit(&self, prefix: &[u8], interval: &Interval<'_>, reverse: bool, visit: &mut EntryFn<'_>) -> Result<ControlFlow<()>> {
        let within = |entry: &PackedEntry<'_>| above(interval.lower, entry.suffix) && below(interval.upper, entry.suffix);
        if interval.complete && !reverse {
            return Ok(packed::entries(interval.list).filter(within).try_for_each(|entry| visit(entry.suffix, entry.value)));
        }
        let mut memory: Vec<PackedEntry<'_>> = packed::entries(interval.list).filter(within).collect();
        if reverse {
            memory.reverse();
        }
        if interval.complete {
            return Ok(memory.iter().try_for_each(|entry| visit(entry.suffix, entry.value)));
        }
        let mut merge = Merge { memory: &memory, reverse, visit };
        let outcome = match self.context.stored() {
            None => ControlFlow::Continue(()),
            Some(store) => {
                let (from, end) = self.group_bounds(prefix);
                let (lower, upper) = full_bounds(&from, &end, interval.lower, interval.upper);
                let bounds = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                let mut outcome = ControlFlow::Continue(());
                store.scan_with(bounds, reverse, &mut |key, value| {
                    outcome = merge.stored(&key[from.len()..], value);
                    outcome
                })?;
                outcome
            }
        };
        Ok(if outcome.is_break() { outcome } else { merge.rest() })
    }
}

/// Changes in memory over entries of the store, both in the order of the visit.
struct Merge<'a, 'b> {
    memory: &'a [PackedEntry<'a>],
    reverse: bool,
    visit: &'a mut EntryFn<'b>,
}

impl Merge<'_, '_> {
    /// Visits what memory has before a stored entry, then that entry unless memory has another version of it.
    fn stored(&mut self, suffix: &[u8], value: &[u8]) -> ControlFlow<()> {
        while let Some((entry, rest)) = self.memory.split_first() {
            let order = if self.reverse { suffix.cmp(entry.suffix) } else { entry.suffix.cmp(suffix) };
            if order == Ordering::Greater {
                break;
            }
            self.memory = rest;
            if entry.is_live() {
                (self.visit)(entry.suffix, entry.value)?;
            }
            if order == Ordering::Equal {
                return ControlFlow::Continue(());
            }
        }
        (self.visit)(suffix, value)
    }

    fn rest(&mut self) -> ControlFlow<()> {
        self.memory.iter().filter(|entry| entry.is_live()).try_for_each(|entry| (self.visit)(entry.suffix, entry.value))
    }
}

fn above(bound: Bound<&[u8]>, suffix: &[u8]) -> bool {
    match bound {
        Bound::Included(bound) => suffix >= bound,
        Bound::Excluded(bound) => suffix > bound,
        Bound::Unbounded => true,
    }
}

fn below(bound: Bound<&[u8]>, suffix: &[u8]) -> bool {
    match bound {
        Bound::Included(bound) => suffix <= bound,
        Bound::Excluded(bound) => suffix < bound,
        Bound::Unbounded => true,
    }
}

/// `f`, but breaking after `limit` calls.
fn limited<'a>(limit: usize, f: &'a mut EntryFn<'_>) -> impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a {
    let mut left = limit;
    move |suffix, value| {
        left -= 1;
        f(suffix, value)?;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
