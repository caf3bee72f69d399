//! Sets of the relations of one join graph, by number.

use std::fmt;

/// A set of at most [`RelationSet::CAPACITY`] relations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub(crate) struct RelationSet(u64);

impl RelationSet {
    /// Most relations that a set can hold.
    pub(crate) const CAPACITY: usize = 64;

    /// No relation.
    pub(crate) const EMPTY: Self = Self(0);

    /// One relation.
    pub(crate) fn one(relation: usize) -> Self {
        debug_assert!(relation < Self::CAPACITY);
        Self(1 << relation)
    }

    /// The relations below `count`.
    pub(crate) fn below(count: usize) -> Self {
        if count >= Self::CAPACITY { Self(u64::MAX) } else { Self((1 << count) - 1) }
    }

    pub(crate) fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(crate) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub(crate) fn contains(self, relation: usize) -> bool {
        !self.intersection(Self::one(relation)).is_empty()
    }

    pub(crate) fn is_subset(self, of: Self) -> bool {
        self.without(of).is_empty()
    }

    pub(crate) fn intersects(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The lowest relation.
    pub(crate) fn lowest(self) -> Option<usize> {
        (!self.is_empty()).then(|| self.0.trailing_zeros() as usize)
    }

    /// The relations, ascending.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let lowest = rest.lowest()?;
            rest = rest.without(Self::one(lowest));
            Some(lowest)
        })
    }

    /// All subsets but the empty one, ascending.
    pub(crate) fn subsets(self) -> impl Iterator<Item = Self> {
        let mut last = 0u64;
        std::iter::from_fn(move || {
            last = last.wrapping_sub(self.0) & self.0;
            (last != 0).then_some(Self(last))
        })
    }
}

impl FromIterator<usize> for RelationSet {
    fn from_iter<T: IntoIterator<Item = usize>>(relations: T) -> Self {
        relations.into_iter().fold(Self::EMPTY, |set, relation| set.union(Self::one(relation)))
    }
}

impl fmt::Debug for RelationSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_but_the_empty_one() {
        let set: RelationSet = [1, 4, 63].into_iter().collect();
        let subsets: Vec<RelationSet> = set.subsets().collect();
        assert_eq!(subsets.len(), 7);
        assert!(subsets.iter().all(|subset| subset.is_subset(set)) && subsets.is_sorted());
        assert_eq!(RelationSet::EMPTY.subsets().count(), 0);
        assert_eq!(RelationSet::below(64).len(), 64);
        assert_eq!(format!("{set:?}"), "{1, 4, 63}");
    }
}
