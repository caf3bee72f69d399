//! Several deltas as one sequence of keys, ascending, each with what all of them together make of it.

use std::{
    cmp::Ordering,
    collections::{BinaryHeap, binary_heap::PeekMut},
    sync::Arc,
};

use super::delta::StoredDelta;

/// What the deltas make of one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    /// The newest delta that has the key, by its place among the deltas.
    pub(super) delta: usize,
    /// The key's run in it.
    pub(super) run: usize,
    /// Whole rows: by how much their number changes. Otherwise without meaning.
    pub(super) count: i64,
}

/// Deltas, oldest first, merged.
#[derive(Debug)]
pub(super) struct Overlay {
    deltas: Vec<Arc<StoredDelta>>,
    heads: BinaryHeap<Head>,
    next: Option<Change>,
}

/// The next key of one delta.
#[derive(Debug)]
struct Head {
    stored: Arc<StoredDelta>,
    delta: usize,
    run: usize,
    end: usize,
}

impl Head {
    fn key(&self) -> &[u8] {
        self.stored.runs.key(self.run)
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The greatest head, which a heap gives first, is the one with the lowest key, and of those the oldest.
impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(self.key()).then(other.delta.cmp(&self.delta))
    }
}

impl Overlay {
    /// The keys from `from` on and below `to`.
    pub(super) fn new(deltas: Vec<Arc<StoredDelta>>, from: &[u8], to: Option<&[u8]>) -> Self {
        let head = |(delta, stored): (usize, &Arc<StoredDelta>)| {
            let run = if from.is_empty() { 0 } else { stored.runs.lower_bound(from) };
            let end = to.map_or(stored.runs.len(), |to| stored.runs.lower_bound(to));
            (run < end).then(|| Head { stored: stored.clone(), delta, run, end })
        };
        let heads = deltas.iter().enumerate().filter_map(head).collect();
        let mut overlay = Self { deltas, heads, next: None };
        overlay.next = overlay.merge();
        overlay
    }

    /// The delta of a change.
    pub(super) fn delta(&self, change: &Change) -> &StoredDelta {
        &self.deltas[change.delta]
    }

    /// All deltas.
    pub(super) fn deltas(&self) -> &[Arc<StoredDelta>] {
        &self.deltas
    }

    /// The key of a change.
    pub(super) fn key(&self, change: &Change) -> &[u8] {
        self.deltas[change.delta].runs.key(change.run)
    }

    /// The next change, without taking it.
    pub(super) fn peek(&self) -> Option<&Change> {
        self.next.as_ref()
    }

    /// The next change.
    pub(super) fn next_change(&mut self) -> Option<Change> {
        let change = self.next.take();
        self.next = self.merge();
        change
    }

    fn merge(&mut self) -> Option<Change> {
        let mut merged: Option<Change> = None;
        while let Some(mut head) = self.heads.peek_mut() {
            let mut count = 0;
            if let Some(before) = &merged {
                if self.deltas[before.delta].runs.key(before.run) != head.key() {
                    break;
                }
                count = before.count;
            }
            count += head.stored.multiplicity(head.run);
            merged = Some(Change { delta: head.delta, run: head.run, count });
            head.run += 1;
            if head.run == head.end {
                PeekMut::pop(head);
            }
        }
        merged
    }
}
