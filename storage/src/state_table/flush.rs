//! Records in the order in which they go to the store.

use super::blocks::Loc;

/// Records sorted by full key. The keys are kept in one buffer.
pub(super) struct FlushOrder {
    keys: Vec<u8>,
    records: Vec<(usize, usize, Loc)>,
}

impl FlushOrder {
    /// Orders records by what `full_key` makes of the keys given with them.
    pub(super) fn new<'a>(records: impl Iterator<Item = (&'a [u8], Loc)>, full_key: impl Fn(&[u8], &mut Vec<u8>)) -> Self {
        let mut order = Self { keys: Vec::new(), records: Vec::with_capacity(records.size_hint().0) };
        let mut buffer = Vec::new();
        for (key, loc) in records {
            full_key(key, &mut buffer);
            let start = order.keys.len();
            order.keys.extend_from_slice(&buffer);
            order.records.push((start, order.keys.len(), loc));
        }
        let keys = &order.keys;
        order.records.sort_unstable_by(|a, b| keys[a.0..a.1].cmp(&keys[b.0..b.1]));
        order
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Loc)> {
        self.records.iter().map(|(start, end, loc)| (&self.keys[*start..*end], *loc))
    }
}
