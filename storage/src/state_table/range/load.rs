//! Bringing groups, or their first entries, into memory.

use std::ops::ControlFlow;

use super::super::blocks::Loc;
use super::super::large::{LIST_BYTES, LIST_ENTRIES, LargeGroup, Segment};
use super::super::packed::{self, LOGGED, PackedEntry, STORED};
use super::super::resident::hash_key;
use super::{COMPLETE, GROUP_STORED, LARGE, REFERENCED, RangeTable};
use crate::encoding::EncodedRows;
use crate::error::Result;

/// How much of a group is brought into memory at once.
const LOAD_ENTRIES: usize = 256;
const LOAD_BYTES: usize = 16 << 10;

/// A part of a group to be read: from suffix `lower` to the end of the interval that memory knows nothing of.
struct Request {
    prefix: usize,
    hash: u32,
    lower: Vec<u8>,
    from: Vec<u8>,
    to: Vec<u8>,
}

/// What was read.
#[derive(Default)]
struct Head {
    list: Vec<u8>,
    count: usize,
    /// The suffix behind the last one read, if the reading stopped before the end.
    reached: Option<Vec<u8>>,
}

impl RangeTable {
    /// Makes small groups resident, and the first entries of large ones, with one pass over the store for all `prefixes`. Nearly free while
    /// everything is in memory. Reads are right without it, but go to the store one by one.
    pub fn load(&mut self, prefixes: &EncodedRows) -> Result<()> {
        self.in_call = true;
        self.load_missing(prefixes)?;
        self.in_call = false;
        Ok(())
    }

    fn load_missing(&mut self, prefixes: &EncodedRows) -> Result<()> {
        self.groups.prefetch(prefixes.iter());
        if !self.inherited.is_empty() {
            prefixes.iter().for_each(|prefix| self.claim(prefix));
        }
        if self.cold.is_empty() && self.partial == 0 {
            return Ok(());
        }
        let mut requests: Vec<Request> = (0..prefixes.len()).filter_map(|index| self.request(index, prefixes.row(index))).collect();
        while !requests.is_empty() {
            requests.sort_unstable_by(|a, b| a.from.cmp(&b.from));
            requests.dedup_by(|a, b| a.from == b.from);
            let heads = self.read_heads(&requests, prefixes)?;
            let mut again = Vec::new();
            for (request, head) in requests.into_iter().zip(heads) {
                let prefix = prefixes.row(request.prefix);
                self.add_head(prefix, &request, head);
                // All that was read may have been deleted in memory.
                again.extend(self.request(request.prefix, prefix));
            }
            requests = again;
        }
        Ok(())
    }

    /// What has to be read so that the first entries of the group are in memory.
    fn request(&mut self, index: usize, prefix: &[u8]) -> Option<Request> {
        let hash = hash_key(prefix);
        let (lower, upper) = match self.groups.find(hash, prefix) {
            None if !self.cold.may_contain(hash) => return None,
            None => (Vec::new(), None),
            Some(loc) => {
                let flags = self.groups.blocks().flags(loc);
                if flags & LARGE != 0 {
                    let id = self.large_id(loc);
                    self.cold_head(id)?
                } else if flags & COMPLETE == 0 {
                    (Vec::new(), None)
                } else {
                    self.groups.blocks_mut().set_flags(loc, flags | REFERENCED);
                    return None;
                }
            }
        };
        let (prefix_key, end) = self.group_bounds(prefix);
        let from = [prefix_key.as_slice(), &lower].concat();
        let to = upper.map_or(end, |upper| [prefix_key.as_slice(), &upper].concat());
        Some(Request { prefix: index, hash, lower, from, to })
    }

    /// The interval of a large group that has its first entries, if memory does not have them.
    fn cold_head(&mut self, id: u32) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let group = self.large[id as usize].as_mut().expect("a large group by its number");
        let (lower, segment) = group.segments.iter_mut().find(|(_, segment)| segment.count > 0 || !segment.complete)?;
        if segment.complete {
            segment.referenced = true;
            return None;
        }
        let lower = lower.to_vec();
        let upper = group.upper_of(&lower).map(<[u8]>::to_vec);
        Some((lower, upper))
    }

    fn read_heads(&self, requests: &[Request], prefixes: &EncodedRows) -> Result<Vec<Head>> {
        let mut heads: Vec<Head> = requests.iter().map(|_| Head::default()).collect();
        let Some(store) = self.context.stored() else { return Ok(heads) };
        let ranges: Vec<(Vec<u8>, Vec<u8>)> = requests.iter().map(|request| (request.from.clone(), request.to.clone())).collect();
        let starts: Vec<usize> = requests.iter().map(|request| self.group_bounds(prefixes.row(request.prefix)).0.len()).collect();
        store.scan_many(&ranges, &mut |index, key, value| {
            let suffix = &key[starts[index]..];
            let head = &mut heads[index];
            packed::push_entry(&mut head.list, STORED | LOGGED, suffix, value);
            head.count += 1;
            if head.count < LOAD_ENTRIES && head.list.len() < LOAD_BYTES {
                return ControlFlow::Continue(());
            }
            head.reached = Some([suffix, &[0]].concat());
            ControlFlow::Break(())
        })?;
        Ok(heads)
    }

    fn add_head(&mut self, prefix: &[u8], request: &Request, head: Head) {
        let Some(loc) = self.groups.find(request.hash, prefix) else {
            return self.add_missing(prefix, request.hash, head);
        };
        let loc = if self.groups.blocks().flags(loc) & LARGE != 0 { loc } else { self.promote(loc) };
        let id = self.large_id(loc);
        self.merge_head(id, &request.lower, head);
        if self.large_group(id).is_empty() {
            self.note_empty(loc);
        } else {
            self.demote(loc);
        }
    }

    /// Adds a group of which nothing was in memory.
    fn add_missing(&mut self, prefix: &[u8], hash: u32, head: Head) {
        if head.count > 0 {
            self.cold.remove(hash);
        }
        if head.reached.is_none() && head.list.len() <= LIST_BYTES && head.count <= LIST_ENTRIES {
            let stored = if head.count > 0 { GROUP_STORED } else { 0 };
            let loc = self.groups.insert(hash, prefix, &head.list, 0, COMPLETE | REFERENCED | stored);
            self.groups.blocks_mut().set_count(loc, head.count);
            if head.count == 0 {
                // Known to be empty until the next relieve.
                self.emptied.push(self.groups.handle(loc));
            }
            return;
        }
        let mut group = LargeGroup::new(prefix, hash);
        group.stored = true;
        group.len = head.reached.is_none().then_some(head.count as u64);
        group.add(&[], head.list, true);
        if let Some(reached) = head.reached {
            group.insert(reached.into(), Segment::new(false));
        }
        let id = self.add_large(group);
        self.groups.insert(hash, prefix, &id.to_le_bytes(), 0, LARGE);
    }

    /// Makes the interval that was read complete: what memory changed in it goes over what was read.
    fn merge_head(&mut self, id: u32, lower: &[u8], head: Head) {
        let overlay = self.with_large(id, |group| group.remove(lower)).expect("an interval that is not complete");
        let (mut merged, mut dead) = (Vec::with_capacity(head.list.len()), Vec::new());
        let cut = match &head.reached {
            None => overlay.list.len(),
            Some(reached) => packed::find(&overlay.list, reached).map_or_else(|at| at, |entry| entry.start),
        };
        let (within, beyond) = overlay.list.split_at(cut);
        let mut changed = packed::entries(within).peekable();
        let mut take = |entry: PackedEntry<'_>, list: &[u8]| {
            if entry.is_live() {
                merged.extend_from_slice(&list[entry.range()]);
            } else {
                dead.push((entry.suffix.to_vec(), entry.flags));
            }
        };
        for stored in packed::entries(&head.list) {
            while let Some(entry) = changed.next_if(|entry| entry.suffix < stored.suffix) {
                take(entry, within);
            }
            match changed.next_if(|entry| entry.suffix == stored.suffix) {
                Some(entry) => take(entry, within),
                None => take(stored, &head.list),
            }
        }
        changed.for_each(|entry| take(entry, within));
        let prefix = self.large_group(id).prefix.clone();
        for (suffix, flags) in dead {
            self.bury(&prefix, &suffix, flags & packed::DIRTY != 0, true);
        }
        self.with_large(id, |group| {
            group.stored = true;
            group.add(lower, merged, true);
            if let Some(reached) = head.reached {
                group.insert(reached.into(), Segment::of(beyond.to_vec(), false));
            }
            if group.is_complete() && group.len.is_none() {
                group.len = Some(group.segments.values().map(|segment| segment.count as u64).sum());
            }
        });
    }

    /// Adds tombstones for the entries of a group that memory does not hold, reading their keys in bounded steps. Returns whether there were any.
    pub(super) fn bury_stored(&mut self, prefix: &[u8]) -> Result<bool> {
        let mut found_any = false;
        for (mut from, to) in self.cold_intervals(prefix) {
            loop {
                let mut keys = Vec::new();
                if let Some(store) = self.context.stored() {
                    let bounds = (std::ops::Bound::Included(from.as_slice()), std::ops::Bound::Excluded(to.as_slice()));
                    store.scan_with(bounds, false, &mut |key, _| {
                        keys.push(key.to_vec());
                        if keys.len() < LOAD_ENTRIES * 16 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                    })?;
                }
                let Some(last) = keys.last() else { break };
                found_any = true;
                from = [last.as_slice(), &[0]].concat();
                self.note_stored(&keys);
                keys.iter().for_each(|key| self.tombstones.push(key, true, true));
                if self.tombstones.memory_bytes() > self.tombstone_bound() {
                    self.flush_tombstones()?;
                }
            }
        }
        Ok(found_any)
    }

    /// Bounds of the full keys of those parts of a group that are not complete in memory.
    fn cold_intervals(&self, prefix: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (from, end) = self.group_bounds(prefix);
        let Some(loc) = self.groups.find(hash_key(prefix), prefix) else { return vec![(from, end)] };
        let flags = self.groups.blocks().flags(loc);
        if flags & LARGE == 0 {
            return if flags & COMPLETE == 0 { vec![(from, end)] } else { Vec::new() };
        }
        let group = self.large_group(self.large_id(loc));
        let cold = group.segments.iter().filter(|(_, segment)| !segment.complete);
        cold.map(|(lower, _)| {
            let upper = group.upper_of(lower).map_or_else(|| end.clone(), |upper| [from.as_slice(), upper].concat());
            ([from.as_slice(), lower].concat(), upper)
        })
        .collect()
    }

    /// Drops the records of groups that are empty in memory and in the store.
    pub(super) fn drop_emptied(&mut self) {
        debug_assert!(self.tombstones.is_empty());
        for handle in std::mem::take(&mut self.emptied) {
            let Some(loc) = self.groups.blocks().resolve(handle) else { continue };
            if self.is_empty_group(loc) {
                self.forget(loc);
            }
        }
    }

    pub(super) fn is_empty_group(&self, loc: Loc) -> bool {
        let flags = self.groups.blocks().flags(loc);
        if flags & LARGE != 0 {
            self.large_group(self.large_id(loc)).is_empty()
        } else {
            flags & COMPLETE != 0 && self.groups.blocks().count(loc) == 0
        }
    }
}
