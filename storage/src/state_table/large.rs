//! A group with many entries: a tree of segments.
//!
//! A segment holds the entries of an interval of suffixes, from its own lower bound to that of the next segment. It is *complete* when memory
//! has all entries of the interval; otherwise it holds only changes, over what the store has. So a group can be in memory as a whole, in
//! parts, or not at all, and the cost of one change does not depend on how many entries the group has.

use std::ops::Bound;

use super::packed::{self, DEAD, DIRTY, LOGGED, PutOutcome, STORED, UNFLUSHED};
use super::segments::Segments;

/// A list longer than this is cut in two.
pub(super) const LIST_BYTES: usize = 4 << 10;
/// A list with more entries than this is cut in two.
pub(super) const LIST_ENTRIES: usize = 64;
/// What a segment takes beside its list and lower bound: its part of a tree node.
const SEGMENT_OVERHEAD_BYTES: usize = 128;

/// The entries of an interval of suffixes.
#[derive(Default)]
pub(super) struct Segment {
    pub(super) list: Vec<u8>,
    /// Entries in the list, dead ones too.
    pub(super) count: usize,
    /// Memory has all entries of the interval, and no dead ones.
    pub(super) complete: bool,
    /// An entry may be dirty.
    pub(super) dirty: bool,
    /// An entry may be unflushed.
    pub(super) unflushed: bool,
    /// Used since the clock hand last came by.
    pub(super) referenced: bool,
}

impl Segment {
    pub(super) fn new(complete: bool) -> Self {
        Self { complete, ..Self::default() }
    }

    /// A segment that holds a list.
    pub(super) fn of(list: Vec<u8>, complete: bool) -> Self {
        let (mut dirty, mut unflushed, mut count) = (false, false, 0);
        for entry in packed::entries(&list) {
            dirty |= entry.flags & DIRTY != 0;
            unflushed |= entry.flags & UNFLUSHED != 0;
            count += 1;
        }
        Self { list, count, complete, dirty, unflushed, referenced: true }
    }

    pub(super) fn is_empty_cold(&self) -> bool {
        !self.complete && self.list.is_empty()
    }
}

/// A group as a tree of segments by lower bound. There is always one with the empty lower bound.
pub(super) struct LargeGroup {
    pub(super) prefix: Box<[u8]>,
    pub(super) hash: u32,
    pub(super) segments: Segments,
    /// Number of entries, if known.
    pub(super) len: Option<u64>,
    /// Listed among the groups with dirty entries.
    pub(super) dirty: bool,
    /// The store has an entry of the group, or may have.
    pub(super) stored: bool,
    /// Bytes in memory.
    pub(super) bytes: usize,
    /// Segments that are not complete.
    pub(super) cold_segments: usize,
    /// Entries moved to a segment with a lower bound below theirs; a sweep that goes by lower bounds may have missed them.
    pub(super) rekeyed: bool,
}

fn segment_bytes(lower: &[u8], segment: &Segment) -> usize {
    segment.list.capacity() + lower.len() + SEGMENT_OVERHEAD_BYTES
}

impl LargeGroup {
    /// A group without segments; the caller adds at least the first.
    pub(super) fn new(prefix: &[u8], hash: u32) -> Self {
        Self {
            prefix: prefix.into(),
            hash,
            segments: Segments::default(),
            len: None,
            dirty: false,
            stored: false,
            bytes: prefix.len() + size_of::<Self>(),
            cold_segments: 0,
            rekeyed: false,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.cold_segments == 0
    }

    /// Adds a segment from `lower` on, cut into lists of the usual size.
    pub(super) fn add(&mut self, lower: &[u8], list: Vec<u8>, complete: bool) {
        let mut lower: Box<[u8]> = lower.into();
        let mut chunk = Vec::new();
        let mut count = 0;
        for entry in packed::entries(&list) {
            if count >= LIST_ENTRIES * 3 / 4 || (!chunk.is_empty() && chunk.len() + entry.range().len() > LIST_BYTES) {
                self.insert(std::mem::replace(&mut lower, entry.suffix.into()), Segment::of(std::mem::take(&mut chunk), complete));
                count = 0;
            }
            chunk.extend_from_slice(&list[entry.range()]);
            count += 1;
        }
        chunk.shrink_to_fit();
        self.insert(lower, Segment::of(chunk, complete));
    }

    pub(super) fn insert(&mut self, lower: Box<[u8]>, segment: Segment) {
        self.bytes += segment_bytes(&lower, &segment);
        self.cold_segments += usize::from(!segment.complete);
        let replaced = self.segments.insert(lower, segment);
        debug_assert!(replaced.is_none(), "a segment is replaced by removing it first");
    }

    pub(super) fn remove(&mut self, lower: &[u8]) -> Option<Segment> {
        let segment = self.segments.remove(lower)?;
        self.bytes -= segment_bytes(lower, &segment);
        self.cold_segments -= usize::from(!segment.complete);
        Some(segment)
    }

    /// The segment whose interval holds `suffix`, and its lower bound.
    pub(super) fn segment_of(&self, suffix: &[u8]) -> (&[u8], &Segment) {
        self.segments.at(suffix).expect("the first segment has the empty lower bound")
    }

    /// The lower bound of the segment behind the one at `lower`.
    pub(super) fn upper_of(&self, lower: &[u8]) -> Option<&[u8]> {
        self.segments.range((Bound::Excluded(lower), Bound::Unbounded)).next().map(|(upper, _)| upper)
    }

    /// Sets an entry; see [`packed::put`]. `absent` counts where memory knows all entries.
    pub(super) fn put(&mut self, suffix: &[u8], value: &[u8], change: u8, absent: u8) {
        let (lower, segment) = self.segments.at_mut(suffix).expect("the first segment has the empty lower bound");
        let absent = if segment.complete { absent } else { absent | STORED | LOGGED };
        let capacity = segment.list.capacity();
        let PutOutcome { replaced, is_last } = packed::put(&mut segment.list, suffix, value, change, absent);
        self.bytes = self.bytes + segment.list.capacity() - capacity;
        segment.count += usize::from(replaced.is_none());
        segment.dirty |= change & DIRTY != 0;
        segment.unflushed |= change & UNFLUSHED != 0;
        segment.referenced = true;
        let known = segment.complete || replaced.is_some();
        let delta = i64::from(change & DEAD == 0) - i64::from(replaced.is_some_and(|flags| flags & DEAD == 0));
        self.len = self.len.filter(|_| known).and_then(|len| len.checked_add_signed(delta));
        if segment.list.len() > LIST_BYTES && segment.count > 1 || segment.count > LIST_ENTRIES {
            let lower = lower.to_vec();
            self.split(&lower, is_last);
        }
    }

    /// Cuts a segment in two: before its last entry if entries are being appended, else in the middle.
    fn split(&mut self, lower: &[u8], before_last: bool) {
        let mut segment = self.remove(lower).expect("the segment is there");
        let cut = if before_last { segment.count - 1 } else { segment.count / 2 };
        let (at, suffix) = packed::entries(&segment.list).nth(cut).map(|entry| (entry.start, entry.suffix.into())).expect("more than one");
        let mut upper = Segment { list: segment.list[at..].to_vec(), count: segment.count - cut, ..Segment::new(segment.complete) };
        (upper.dirty, upper.unflushed, upper.referenced) = (segment.dirty, segment.unflushed, segment.referenced);
        segment.list.truncate(at);
        segment.list.shrink_to_fit();
        segment.count = cut;
        self.insert(lower.into(), segment);
        self.insert(suffix, upper);
    }

    /// Takes an entry out of a complete segment and returns its flags; `None` if there is no such entry.
    pub(super) fn take(&mut self, suffix: &[u8]) -> Option<u8> {
        let (lower, segment) = self.segments.at_mut(suffix).expect("the first segment has the empty lower bound");
        let entry = packed::find(&segment.list, suffix).ok()?;
        let (flags, range) = (entry.flags, entry.range());
        packed::PackedList::splice(&mut segment.list, range.start, range.len(), 0);
        segment.count -= 1;
        segment.referenced = true;
        self.len = self.len.map(|len| len.saturating_sub(1));
        if segment.count == 0 {
            let lower = lower.to_vec();
            self.merge_empty(&lower);
        }
        Some(flags)
    }

    /// Joins a complete segment without entries to a complete neighbour, so that emptied parts of a group leave nothing behind.
    fn merge_empty(&mut self, lower: &[u8]) {
        let before = self.segments.range((Bound::Unbounded, Bound::Excluded(lower))).next_back();
        if before.is_some_and(|(_, segment)| segment.complete) {
            self.remove(lower);
            return;
        }
        let after = self.segments.range((Bound::Excluded(lower), Bound::Unbounded)).next();
        if let Some(after) = after.filter(|(_, segment)| segment.complete).map(|(after, _)| after.to_vec()) {
            self.remove(lower);
            let segment = self.remove(&after).expect("the segment is there");
            self.insert(lower.into(), segment);
            self.rekeyed = true;
        }
    }

    /// Drops the list of a segment that the store holds as it is, joining it to neighbours that are dropped too.
    pub(super) fn evict(&mut self, lower: &[u8]) {
        self.remove(lower);
        let neighbour = |entry: Option<(&[u8], &Segment)>| entry.filter(|(_, s)| s.is_empty_cold()).map(|(key, _)| key.to_vec());
        let before = neighbour(self.segments.range((Bound::Unbounded, Bound::Excluded(lower))).next_back());
        let after = neighbour(self.segments.range((Bound::Excluded(lower), Bound::Unbounded)).next());
        if let Some(after) = after {
            self.remove(&after);
        }
        if before.is_none() {
            self.insert(lower.into(), Segment::new(false));
        }
    }

    /// Whether nothing of the group is in memory but that it exists.
    pub(super) fn is_evicted(&self) -> bool {
        self.segments.len() == 1 && self.segments.values().all(Segment::is_empty_cold)
    }

    /// Whether the group has no entry at all, in memory or in the store.
    pub(super) fn is_empty(&self) -> bool {
        // Of a complete group, segments without entries have been joined to their neighbours.
        self.is_complete() && self.segments.len() == 1 && self.segments.values().all(|segment| segment.count == 0)
    }

    /// Corrects the bytes after the list at `lower` was changed in place by `change`.
    pub(super) fn with_list<R>(&mut self, lower: &[u8], change: impl FnOnce(&mut Segment) -> R) -> R {
        let segment = self.segments.get_mut(lower).expect("the segment is there");
        let capacity = segment.list.capacity();
        let result = change(segment);
        self.bytes = self.bytes + segment.list.capacity() - capacity;
        result
    }
}
