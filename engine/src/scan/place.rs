//! How far a scan is, by what its subtask has taken.
//!
//! A reader runs ahead of its subtask by what its channel holds. An unaligned checkpoint does not keep that: the reader can read it again. So
//! every message of a scan's channel carries the position of the reader before and behind it, and the subtask knows where it stands itself,
//! to the row.

use std::{collections::BTreeMap, sync::Arc};

use super::{collection::CollectionPosition, source::SplitPosition};

/// Where one reader, or one split of it, stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Position {
    /// A split of a source.
    Split(Arc<str>, SplitPosition),
    /// A collection, or constant rows.
    Collection(CollectionPosition),
}

impl Position {
    /// The position `rows` emitted rows behind this one.
    fn behind(&self, rows: u64) -> Self {
        match self {
            Position::Split(split, position) => Position::Split(split.clone(), SplitPosition { skip: position.skip + rows, ..*position }),
            Position::Collection(position) => {
                Position::Collection(CollectionPosition { emitted: position.emitted + rows, ..position.clone() })
            }
        }
    }
}

/// What a message says of its reader.
#[derive(Clone, Debug)]
pub enum Place {
    /// A chunk: the position before and behind its rows.
    Rows {
        /// Before the first row.
        before: Position,
        /// Behind the last row.
        after: Position,
    },
    /// A barrier: the positions of all splits.
    Barrier(Vec<Position>),
}

impl Place {
    /// The positions behind the message, or behind its first `taken` rows if it has more.
    pub fn positions(&self, taken: Option<u64>) -> Vec<Position> {
        match (self, taken) {
            (Place::Rows { before, .. }, Some(rows)) => vec![before.behind(rows)],
            (Place::Rows { after, .. }, None) => vec![after.clone()],
            (Place::Barrier(positions), _) => positions.clone(),
        }
    }

    /// Cuts off the place of the message's first `rows` rows, where it has more, and is that of the others then.
    pub fn split_off_first(&mut self, rows: u64) -> Self {
        match self {
            Place::Rows { before, .. } => {
                let border = before.behind(rows);
                Place::Rows { before: std::mem::replace(before, border.clone()), after: border }
            }
            Place::Barrier(positions) => Place::Barrier(positions.clone()),
        }
    }
}

/// Where the scans of one subtask stand. What is not in it stands where it did when the subtask was started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPlaces {
    /// Scan node and split -> position. A source may be scanned more than once, and not at one pace.
    pub splits: BTreeMap<(usize, Arc<str>), SplitPosition>,
    /// Scan node -> position.
    pub collections: BTreeMap<usize, CollectionPosition>,
}

impl ScanPlaces {
    /// Takes note of where the scan with this number is now.
    pub fn note(&mut self, node: usize, positions: Vec<Position>) {
        for position in positions {
            match position {
                Position::Split(split, position) => {
                    self.splits.insert((node, split), position);
                }
                Position::Collection(position) => {
                    self.collections.insert(node, position);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_may_be_taken_in_part() {
        let at = |offset, skip| Position::Split("s".into(), SplitPosition { offset, watermark_us: 5, floor_us: i64::MIN, skip });
        let place = Place::Rows { before: at(10, 3), after: at(50, 0) };
        let mut places = ScanPlaces::default();
        places.note(7, place.positions(Some(4)));
        assert_eq!(places.splits[&(7, "s".into())].skip, 7);
        places.note(7, place.positions(None));
        assert_eq!(places.splits[&(7, "s".into())].offset, 50);
        let start = CollectionPosition::start();
        let after = CollectionPosition { emitted: 9, ..start.clone() };
        let place = Place::Rows { before: Position::Collection(start), after: Position::Collection(after) };
        places.note(7, place.positions(Some(2)));
        assert_eq!(places.collections[&7].emitted, 2);
    }
}
