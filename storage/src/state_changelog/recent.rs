//! Which keys a changelog has changes of that no complete checkpoint has.

use std::collections::{HashSet, VecDeque};

use twox_hash::XxHash3_64;

/// So many changes are told apart; with more, all keys count as changed until a checkpoint has them. 16 MB.
const MOST_KEYS: usize = 1 << 20;

/// Hashes of the keys: one that did not change may be taken for one that did, never the other way round.
#[derive(Debug)]
pub(crate) struct RecentChanges {
    /// Of ended segments, with the position of their end.
    ended: VecDeque<(u64, HashSet<u64>)>,
    open: HashSet<u64>,
    kept: usize,
    /// Up to this position anything may have changed.
    unknown_upto: u64,
    /// What came up to here need not be known.
    named: u64,
}

impl RecentChanges {
    /// Knows of nothing before `position`.
    pub(super) fn new(position: u64) -> Self {
        Self { ended: VecDeque::new(), open: HashSet::new(), kept: 0, unknown_upto: position, named: 0 }
    }

    pub(super) fn note(&mut self, full_key: &[u8], position: u64) {
        if !self.open.insert(XxHash3_64::oneshot(full_key)) {
            return;
        }
        self.kept += 1;
        if self.kept > MOST_KEYS {
            *self = Self { named: self.named, ..Self::new(position) };
        }
    }

    pub(super) fn end_segment(&mut self, position: u64) {
        self.ended.push_back((position, std::mem::take(&mut self.open)));
    }

    /// A complete checkpoint has all changes up to `named`.
    pub(super) fn forget(&mut self, named: u64) {
        self.named = self.named.max(named);
        while let Some((_, keys)) = self.ended.pop_front_if(|(end, _)| *end <= named) {
            self.kept -= keys.len();
        }
    }

    /// Whether a key may have changed since.
    pub(crate) fn may_have(&self, full_key: &[u8]) -> bool {
        if self.named < self.unknown_upto {
            return true;
        }
        let hash = XxHash3_64::oneshot(full_key);
        self.open.contains(&hash) || self.ended.iter().any(|(_, keys)| keys.contains(&hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_checkpoint_has_is_forgotten() {
        let mut recent = RecentChanges::new(0);
        recent.note(b"a", 10);
        recent.end_segment(10);
        recent.note(b"b", 20);
        recent.end_segment(20);
        recent.note(b"c", 30);
        let known = |recent: &RecentChanges| [b"a", b"b", b"c", b"d"].map(|key| recent.may_have(key));
        assert_eq!(known(&recent), [true, true, true, false]);
        recent.forget(10);
        assert_eq!(known(&recent), [false, true, true, false]);
        recent.forget(20);
        assert_eq!(known(&recent), [false, false, true, false]);
    }

    #[test]
    fn what_is_not_known_counts_as_changed() {
        let mut late = RecentChanges::new(100);
        assert!(late.may_have(b"a"), "it may have changed before");
        late.end_segment(120);
        late.forget(120);
        assert!(!late.may_have(b"a"));
        let mut many = RecentChanges::new(0);
        for number in 0..=MOST_KEYS as u64 {
            many.note(&number.to_be_bytes(), number + 1);
        }
        assert!(many.may_have(b"a"));
        many.end_segment(MOST_KEYS as u64 + 1);
        many.forget(MOST_KEYS as u64 + 1);
        assert!(!many.may_have(b"a") && many.kept == 0);
    }
}
