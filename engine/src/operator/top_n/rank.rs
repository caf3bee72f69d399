//! Ranks: which entries of an ordered list are in the window that the query asks for, and how one window differs from another.

use std::cmp::Ordering;

use millpond_storage::encoding::key::KeyCodec;

use super::packed::Entry;
use crate::{error::Result, graph::RankKind};

/// Which rows are output, and with which rank.
pub(super) struct Window {
    kind: RankKind,
    /// Ranks up to this one are left out.
    offset: u64,
    /// Ranks above this one are left out.
    last: u64,
    emit_rank: bool,
    /// Codec of the order columns, which begin each key.
    order: KeyCodec,
}

/// A row of the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ranked<'a> {
    /// Its sort key.
    pub key: &'a [u8],
    /// Its exact form, if the key is not that.
    pub exact: &'a [u8],
    /// Its rank; zero if that is not output.
    pub rank: u64,
    /// How often it is there.
    pub copies: u64,
}

/// Counts ranks along an ordered list.
#[derive(Default)]
pub(super) struct Counter {
    rows: u64,
    rank: u64,
    groups: u64,
    order: Vec<u8>,
}

impl Window {
    pub(super) fn new(kind: RankKind, offset: u64, limit: Option<u64>, emit_rank: bool, order: KeyCodec) -> Self {
        let last = limit.map_or(u64::MAX, |limit| offset.saturating_add(limit));
        Self { kind, offset, last, emit_rank, order }
    }

    /// The greatest rank that is output.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The order columns' part of a key.
    fn order_of<'a>(&self, key: &'a [u8]) -> Result<&'a [u8]> {
        Ok(&key[..self.order.key_length(key)?])
    }

    /// Takes the next row of a list; `false` if its rank is beyond the window, and so are all that follow.
    pub(super) fn count(&self, counter: &mut Counter, key: &[u8], copies: u64) -> Result<bool> {
        if self.kind != RankKind::RowNumber {
            let order = self.order_of(key)?;
            if counter.groups == 0 || counter.order != order {
                counter.order.clear();
                counter.order.extend_from_slice(order);
                counter.rank = counter.rows + 1;
                counter.groups += 1;
            }
        }
        let first_rank = match self.kind {
            RankKind::RowNumber => counter.rows + 1,
            RankKind::Rank => counter.rank,
            RankKind::DenseRank => counter.groups,
        };
        counter.rows = counter.rows.saturating_add(copies);
        Ok(first_rank <= self.last)
    }

    /// Whether the row just counted is certainly the last of the window.
    pub(super) fn ends_with(&self, counter: &Counter) -> bool {
        self.kind == RankKind::RowNumber && counter.rows >= self.last
    }

    /// Whether no row that sorts after a list's last key, and, among ties, after `key`'s order columns, can come into the window.
    pub(super) fn is_full(&self, counter: &Counter) -> bool {
        match self.kind {
            RankKind::RowNumber | RankKind::Rank => counter.rows >= self.last,
            RankKind::DenseRank => counter.groups >= self.last,
        }
    }

    /// Whether a new row is certainly outside the window of a full list whose last key is `last`.
    pub(super) fn is_beyond(&self, key: &[u8], last: &[u8]) -> Result<bool> {
        Ok(match self.kind {
            RankKind::RowNumber => key >= last,
            RankKind::Rank | RankKind::DenseRank => self.order_of(key)? > self.order_of(last)?,
        })
    }

    /// The rows of a list that are output.
    pub(super) fn select<'a>(&self, list: impl Iterator<Item = Entry<'a>>, out: &mut Vec<Ranked<'a>>) -> Result<()> {
        out.clear();
        let mut counter = Counter::default();
        for entry in list {
            let before = counter.rows;
            if !self.count(&mut counter, entry.key, entry.copies)? {
                break;
            }
            let Entry { key, exact, copies } = entry;
            match self.kind {
                RankKind::RowNumber => {
                    let (first, last) = (before.max(self.offset), counter.rows.min(self.last));
                    if self.emit_rank {
                        out.extend((first..last).map(|position| Ranked { key, exact, rank: position + 1, copies: 1 }));
                    } else if first < last {
                        out.push(Ranked { key, exact, rank: 0, copies: last - first });
                    }
                }
                RankKind::Rank | RankKind::DenseRank => {
                    let rank = if self.kind == RankKind::Rank { counter.rank } else { counter.groups };
                    if rank > self.offset {
                        out.push(Ranked { key, exact, rank: if self.emit_rank { rank } else { 0 }, copies });
                    }
                }
            }
        }
        Ok(())
    }
}

/// What changes from `old` to `new`, both in order: each difference with its multiplicity, negative for rows that go.
pub(super) fn differences<'a>(old: &[Ranked<'a>], new: &[Ranked<'a>], mut emit: impl FnMut(Ranked<'a>, i64)) {
    let (mut left, mut right) = (0, 0);
    loop {
        let order = match (old.get(left), new.get(right)) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(gone), Some(come)) => (gone.key, gone.rank).cmp(&(come.key, come.rank)),
        };
        match order {
            Ordering::Less => {
                emit(old[left], -(old[left].copies as i64));
                left += 1;
            }
            Ordering::Greater => {
                emit(new[right], new[right].copies as i64);
                right += 1;
            }
            Ordering::Equal => {
                let change = new[right].copies as i64 - old[left].copies as i64;
                if change != 0 {
                    emit(new[right], change);
                }
                left += 1;
                right += 1;
            }
        }
    }
}
