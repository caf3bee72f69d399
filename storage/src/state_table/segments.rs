//! The segments of a large group by lower bound: an ordered map whose keys keep their first bytes in place.
//!
//! Descending a tree of boxed byte strings costs a cache miss for every key it compares with. Most comparisons are decided by the first sixteen
//! bytes, which lie in the node: a number, with what its encoding puts before it, fits in.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use super::large::Segment;

/// A lower bound.
struct Lower {
    head: u128,
    bytes: Box<[u8]>,
}

/// The first sixteen bytes as a number that sorts as they do, missing ones as zero.
fn head(bytes: &[u8]) -> u128 {
    match bytes.first_chunk() {
        Some(first) => u128::from_be_bytes(*first),
        None => {
            let mut padded = [0; 16];
            padded[..bytes.len()].copy_from_slice(bytes);
            u128::from_be_bytes(padded)
        }
    }
}

/// What an owned and a borrowed bound have in common.
trait AsBound {
    fn parts(&self) -> (u128, &[u8]);
}

impl AsBound for Lower {
    fn parts(&self) -> (u128, &[u8]) {
        (self.head, &self.bytes)
    }
}

impl AsBound for (u128, &[u8]) {
    fn parts(&self) -> (u128, &[u8]) {
        (self.0, self.1)
    }
}

impl Ord for dyn AsBound + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((head, bytes), (other_head, other_bytes)) = (self.parts(), other.parts());
        head.cmp(&other_head).then_with(|| bytes.cmp(other_bytes))
    }
}

impl PartialOrd for dyn AsBound + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn AsBound + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for dyn AsBound + '_ {}

impl Ord for Lower {
    fn cmp(&self, other: &Self) -> Ordering {
        self.head.cmp(&other.head).then_with(|| self.bytes.cmp(&other.bytes))
    }
}

impl PartialOrd for Lower {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Lower {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Lower {}

impl<'a> Borrow<dyn AsBound + 'a> for Lower {
    fn borrow(&self) -> &(dyn AsBound + 'a) {
        self
    }
}

/// Segments by lower bound.
#[derive(Default)]
pub(super) struct Segments {
    map: BTreeMap<Lower, Segment>,
}

/// Bounds on lower bounds.
type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn with_head(bound: Bound<&[u8]>) -> Bound<(u128, &[u8])> {
    bound.map(|bytes| (head(bytes), bytes))
}

impl Segments {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    pub(super) fn insert(&mut self, lower: Box<[u8]>, segment: Segment) -> Option<Segment> {
        self.map.insert(Lower { head: head(&lower), bytes: lower }, segment)
    }

    pub(super) fn remove(&mut self, lower: &[u8]) -> Option<Segment> {
        self.map.remove::<dyn AsBound>(&(head(lower), lower))
    }

    pub(super) fn get(&self, lower: &[u8]) -> Option<&Segment> {
        self.map.get::<dyn AsBound>(&(head(lower), lower))
    }

    pub(super) fn get_mut(&mut self, lower: &[u8]) -> Option<&mut Segment> {
        self.map.get_mut::<dyn AsBound>(&(head(lower), lower))
    }

    /// The segment with the highest lower bound that is not above `suffix`.
    pub(super) fn at(&self, suffix: &[u8]) -> Option<(&[u8], &Segment)> {
        self.range((Bound::Unbounded, Bound::Included(suffix))).next_back()
    }

    pub(super) fn at_mut(&mut self, suffix: &[u8]) -> Option<(&[u8], &mut Segment)> {
        self.range_mut((Bound::Unbounded, Bound::Included(suffix))).next_back()
    }

    /// The segments whose lower bounds are within `bounds`.
    pub(super) fn range(&self, bounds: Bounds<'_>) -> impl DoubleEndedIterator<Item = (&[u8], &Segment)> {
        let (from, to) = (with_head(bounds.0), with_head(bounds.1));
        let bounds = (from.as_ref().map(|bound| bound as &dyn AsBound), to.as_ref().map(|bound| bound as &dyn AsBound));
        self.map.range::<dyn AsBound, _>(bounds).map(|(lower, segment)| (&*lower.bytes, segment))
    }

    pub(super) fn range_mut(&mut self, bounds: Bounds<'_>) -> impl DoubleEndedIterator<Item = (&[u8], &mut Segment)> {
        let (from, to) = (with_head(bounds.0), with_head(bounds.1));
        let bounds = (from.as_ref().map(|bound| bound as &dyn AsBound), to.as_ref().map(|bound| bound as &dyn AsBound));
        self.map.range_mut::<dyn AsBound, _>(bounds).map(|(lower, segment)| (&*lower.bytes, segment))
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &Segment)> {
        self.map.iter().map(|(lower, segment)| (&*lower.bytes, segment))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&[u8], &mut Segment)> {
        self.map.iter_mut().map(|(lower, segment)| (&*lower.bytes, segment))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Segment> {
        self.map.values()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.map.values_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_sort_as_their_bytes_do() {
        let mut keys: Vec<&[u8]> = vec![
            b"",
            b"\0",
            b"\0\0",
            b"a",
            b"a\0",
            b"abcdefgh",
            b"abcdefgh\0",
            b"abcdefghi",
            b"abcdefgi",
            b"abcdefgijklmnopq",
            b"abcdefgijklmnopqr",
            b"\xff",
        ];
        let mut segments = Segments::default();
        for key in keys.iter().rev() {
            assert!(segments.insert((*key).into(), Segment::new(true)).is_none());
        }
        keys.sort_unstable();
        assert_eq!(segments.iter().map(|(lower, _)| lower).collect::<Vec<_>>(), keys);
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(segments.at(key).unwrap().0, *key);
            let after = segments.range((Bound::Excluded(key), Bound::Unbounded)).map(|(lower, _)| lower).collect::<Vec<_>>();
            assert_eq!(after, keys[index + 1..]);
        }
        assert!(segments.remove(b"abcdefgh").is_some());
        assert_eq!(segments.at(b"abcdefgh").unwrap().0, b"a\0");
    }
}
