//! A short sorted list of (suffix, value) in one byte string.
//!
//! ```text
//! list = (flags u8, suffix length varint, value length varint, suffix, value)*   in ascending order of suffixes
//! ```

use std::cmp::Ordering;
use std::ops::Range;

/// The entry is deleted; only in lists that are not complete, where it hides what the store has.
pub(super) const DEAD: u8 = 1;
/// The changelog lacks the entry.
pub(super) const DIRTY: u8 = 1 << 1;
/// The store lacks the entry.
pub(super) const UNFLUSHED: u8 = 1 << 2;
/// The store has a version of the entry, or may have.
pub(super) const STORED: u8 = 1 << 3;
/// The changelog has a version of the entry, or may have.
pub(super) const LOGGED: u8 = 1 << 4;

/// One entry of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedEntry<'a> {
    pub(super) flags: u8,
    pub(super) suffix: &'a [u8],
    pub(super) value: &'a [u8],
    /// Where the entry starts and ends in the list.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl PackedEntry<'_> {
    pub(super) fn is_live(&self) -> bool {
        self.flags & DEAD == 0
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

fn varint_bytes(number: usize) -> usize {
    (usize::BITS as usize - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
fn read_varint(bytes: &[u8], at: &mut usize) -> usize {
    let first = bytes[*at];
    *at += 1;
    if first < 0x80 {
        return usize::from(first);
    }
    let mut number = usize::from(first & 0x7f);
    let mut shift = 7;
    loop {
        let byte = bytes[*at];
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
        shift += 7;
    }
}

fn write_varint(out: &mut [u8], at: &mut usize, mut number: usize) {
    while number >= 0x80 {
        out[*at] = number as u8 | 0x80;
        *at += 1;
        number >>= 7;
    }
    out[*at] = number as u8;
    *at += 1;
}

/// Lengths of suffix and value of an entry, and where the suffix is.
#[cold]
fn lengths_at(list: &[u8], start: usize) -> (usize, usize, usize) {
    let mut at = start + 1;
    let suffix_len = read_varint(list, &mut at);
    let value_len = read_varint(list, &mut at);
    (suffix_len, value_len, at)
}

#[inline(always)]
fn entry_at(list: &[u8], start: usize) -> PackedEntry<'_> {
    let (suffix_len, value_len, at) = match list[start..] {
        // Nearly every entry is short: no loops in the way of passing over it.
        [_, suffix_len @ ..0x80, value_len @ ..0x80, ..] => (usize::from(suffix_len), usize::from(value_len), start + 3),
        _ => lengths_at(list, start),
    };
    let middle = at + suffix_len;
    let end = middle + value_len;
    PackedEntry { flags: list[start], suffix: &list[at..middle], value: &list[middle..end], start, end }
}

/// The entries of a list in order.
pub(super) fn entries(list: &[u8]) -> impl Iterator<Item = PackedEntry<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        (at < list.len()).then(|| {
            let entry = entry_at(list, at);
            at = entry.end;
            entry
        })
    })
}

/// Compares byte strings, the first eight bytes at once: most suffixes differ there, or, where they are as long as each other and short, in the
/// last eight.
#[inline]
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let (Some(first_a), Some(first_b)) = (a.first_chunk(), b.first_chunk()) else { return a.cmp(b) };
    match u64::from_be_bytes(*first_a).cmp(&u64::from_be_bytes(*first_b)) {
        Ordering::Equal => {}
        unequal => return unequal,
    }
    match (a.last_chunk(), b.last_chunk()) {
        // The last eight bytes begin within the first eight, which are equal.
        (Some(last_a), Some(last_b)) if a.len() == b.len() && a.len() <= 16 => {
            u64::from_be_bytes(*last_a).cmp(&u64::from_be_bytes(*last_b))
        }
        _ => a[8..].cmp(&b[8..]),
    }
}

/// The entry of `suffix`, or where it would be inserted.
pub(super) fn find<'a>(list: &'a [u8], suffix: &[u8]) -> Result<PackedEntry<'a>, usize> {
    let mut at = 0;
    while at < list.len() {
        let entry = entry_at(list, at);
        match compare(entry.suffix, suffix) {
            Ordering::Less => at = entry.end,
            Ordering::Equal => return Ok(entry),
            Ordering::Greater => return Err(at),
        }
    }
    Err(at)
}

/// Bytes that an entry takes in a list.
pub(super) fn entry_bytes(suffix: &[u8], value: &[u8]) -> usize {
    1 + varint_bytes(suffix.len()) + varint_bytes(value.len()) + suffix.len() + value.len()
}

/// Writes an entry into a gap of just its size.
pub(super) fn write_entry(gap: &mut [u8], flags: u8, suffix: &[u8], value: &[u8]) {
    gap[0] = flags;
    let mut at = 1;
    write_varint(gap, &mut at, suffix.len());
    write_varint(gap, &mut at, value.len());
    gap[at..at + suffix.len()].copy_from_slice(suffix);
    gap[at + suffix.len()..].copy_from_slice(value);
}

/// Appends an entry whose suffix is above all others.
pub(super) fn push_entry(list: &mut Vec<u8>, flags: u8, suffix: &[u8], value: &[u8]) {
    let start = list.len();
    list.resize(start + entry_bytes(suffix, value), 0);
    write_entry(&mut list[start..], flags, suffix, value);
}

/// In a buffer that holds a list of `len` bytes and has room, makes `old` bytes at `at` a gap of `new` bytes.
pub(super) fn shift(buffer: &mut [u8], len: usize, at: usize, old: usize, new: usize) {
    if old != new {
        buffer.copy_within(at + old..len, at + new);
    }
}

/// A list that can grow.
pub(super) trait PackedList {
    fn list(&self) -> &[u8];

    /// Makes `old` bytes at `at` a gap of `new` bytes and returns the gap.
    fn splice(&mut self, at: usize, old: usize, new: usize) -> &mut [u8];
}

impl PackedList for Vec<u8> {
    fn list(&self) -> &[u8] {
        self
    }

    fn splice(&mut self, at: usize, old: usize, new: usize) -> &mut [u8] {
        let len = self.len();
        if new > old {
            let grown = len + new - old;
            if grown > self.capacity() {
                self.reserve_exact(grown / 4 + new - old);
            }
            self.resize(grown, 0);
            shift(self, len, at, old, new);
        } else {
            shift(self, len, at, old, new);
            self.truncate(len + new - old);
        }
        &mut self[at..at + new]
    }
}

/// What [`put`] found.
pub(super) struct PutOutcome {
    /// Flags of the entry it replaced.
    pub(super) replaced: Option<u8>,
    /// Whether the entry is the last of the list.
    pub(super) is_last: bool,
}

/// Sets an entry. Its flags become `change` over what an entry there had, or over `absent` if there was none.
pub(super) fn put(list: &mut impl PackedList, suffix: &[u8], value: &[u8], change: u8, absent: u8) -> PutOutcome {
    let bytes = entry_bytes(suffix, value);
    let (at, old, replaced) = match find(list.list(), suffix) {
        Ok(entry) => (entry.start, entry.end - entry.start, Some(entry.flags)),
        Err(at) => (at, 0, None),
    };
    let flags = (replaced.unwrap_or(absent) & !DEAD) | change;
    write_entry(list.splice(at, old, bytes), flags, suffix, value);
    PutOutcome { replaced, is_last: at + bytes == list.list().len() }
}

/// Notes that the changelog has all entries.
pub(super) fn mark_logged(list: &mut [u8]) {
    let mut at = 0;
    while at < list.len() {
        let end = entry_at(list, at).end;
        if list[at] & DIRTY != 0 {
            list[at] = (list[at] & !DIRTY) | LOGGED;
        }
        at = end;
    }
}

/// Notes that changelog and store have all entries and drops the dead ones. Returns how long the list is now.
pub(super) fn mark_flushed(list: &mut [u8]) -> usize {
    let (mut from, mut to) = (0, 0);
    while from < list.len() {
        let end = entry_at(list, from).end;
        let flags = list[from];
        if flags & DEAD == 0 {
            list[from] = if flags & UNFLUSHED == 0 { flags } else { (flags & !(DIRTY | UNFLUSHED)) | STORED | LOGGED };
            list.copy_within(from..end, to);
            to += end - from;
        }
        from = end;
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(list: &[u8]) -> String {
        entries(list)
            .map(|e| format!("{}={}/{}", String::from_utf8_lossy(e.suffix), String::from_utf8_lossy(e.value), e.flags))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn entries_stay_sorted_and_keep_what_is_known_of_them() {
        let mut list = Vec::new();
        for (suffix, value) in [("m", "1"), ("a", "22"), ("z", ""), ("m", "333")] {
            put(&mut list, suffix.as_bytes(), value.as_bytes(), DIRTY | UNFLUSHED, 0);
        }
        assert_eq!(text(&list), "a=22/6 m=333/6 z=/6");
        mark_logged(&mut list);
        assert_eq!(text(&list), "a=22/20 m=333/20 z=/20");
        put(&mut list, b"b", b"", DEAD | DIRTY | UNFLUSHED, STORED | LOGGED);
        assert_eq!(text(&list), "a=22/20 b=/31 m=333/20 z=/20");
        let len = mark_flushed(&mut list);
        list.truncate(len);
        assert_eq!(text(&list), "a=22/24 m=333/24 z=/24");
        assert!(put(&mut list, b"m", b"4", DIRTY | UNFLUSHED, 0).replaced.is_some());
        assert_eq!(text(&list), "a=22/24 m=4/30 z=/24");
    }

    #[test]
    fn comparing_is_what_it_is_for_bytes() {
        let mut bytes = Vec::new();
        for length in 0..20_usize {
            bytes.push(vec![0; length]);
            for at in 0..length {
                for other in [1, 0xff] {
                    let mut changed = vec![0; length];
                    changed[at] = other;
                    bytes.push(changed);
                }
            }
        }
        for a in &bytes {
            for b in &bytes {
                assert_eq!(compare(a, b), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn long_suffixes_and_values_have_long_lengths() {
        let mut list = Vec::new();
        let (suffix, value) = (vec![7; 300], vec![8; 70_000]);
        put(&mut list, &suffix, &value, DIRTY, 0);
        put(&mut list, b"", b"x", DIRTY, 0);
        let entry = find(&list, &suffix).unwrap();
        assert_eq!((entry.suffix, entry.value, entry.end), (suffix.as_slice(), value.as_slice(), list.len()));
        assert_eq!(find(&list, &[7]).unwrap_err(), entry.start);
    }
}
