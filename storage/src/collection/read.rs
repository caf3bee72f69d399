//! Reading: scans, lookups by key, and deltas.

use std::sync::Arc;

use arrow::{array::Array, compute::interleave, record_batch::RecordBatch};

use super::{
    Base, Collection, CollectionKey, Delta,
    append::AppendBase,
    delta::{StoredDelta, key_hash},
    keyed::KeyedBase,
    layout::row_count,
    overlay::Overlay,
    retained::Retained,
    scan::{AppendScan, CollectionScan, KeyedScan, ScanRequest, empty_batch, key_bounds},
};
use crate::{
    encoding::EncodedRows,
    epoch::Epoch,
    error::{Result, StorageError},
};

/// So few keys are looked up without copying the list of deltas; sealing waits for that long.
const KEYS_UNDER_LOCK: usize = 32;

impl Collection {
    /// Reads the contents at `at` in key order (append-only: in the order of the ordinals). The scan goes on to see that epoch, whatever is sealed
    /// or folded meanwhile. [`StorageError::FallenBehind`] if the epoch is gone.
    pub fn scan(self: &Arc<Self>, at: Epoch, request: ScanRequest) -> Result<CollectionScan> {
        let columns = self.layout.schema.fields().len();
        let projection = request.projection.clone().unwrap_or_else(|| (0..columns).collect());
        if let Some(column) = projection.iter().find(|column| **column >= columns) {
            return Err(StorageError::Internal(format!("collection {} has no column {column}", self.id)));
        }
        let _hold = self.hold(at)?;
        match &self.base {
            Base::Keyed(base) => self.scan_keyed(base, at, projection, &request),
            Base::Append(base) => self.scan_append(base, at, projection, &request),
        }
    }

    fn scan_keyed(&self, base: &KeyedBase, at: Epoch, projection: Vec<usize>, request: &ScanRequest) -> Result<CollectionScan> {
        let (from, to) = key_bounds(request);
        // Deltas first: what is folded between is in both, and left out by the base's epoch.
        let retained = self.retained_upto(at)?;
        let (meta, cursor) = base.scan(&from, to.as_deref())?;
        let deltas = retained.iter().filter(|delta| delta.to > meta.epoch && delta.rows > 0);
        let deltas = deltas.map(|delta| delta.load(&self.layout)).collect::<Result<Vec<_>>>()?;
        let overlay = Overlay::new(deltas, &from, to.as_deref());
        CollectionScan::keyed(KeyedScan::new(self.layout.clone(), projection, cursor, overlay), request)
    }

    fn scan_append(&self, base: &AppendBase, at: Epoch, projection: Vec<usize>, request: &ScanRequest) -> Result<CollectionScan> {
        let retained = self.retained_upto(at)?;
        let segments = base.contents();
        let deltas = retained.into_iter().filter(|delta| delta.rows > 0).collect();
        CollectionScan::append(AppendScan::new(self.layout.clone(), projection, segments, deltas, request), request)
    }

    /// The deltas up to a readable epoch, oldest first.
    fn retained_upto(&self, at: Epoch) -> Result<Vec<Retained>> {
        let state = self.state.read();
        state.check_readable(self.id, at)?;
        Ok(state.retained.iter().take_while(|delta| delta.to <= at).cloned().collect())
    }

    /// Looks up keys (of the collection's key codec; append-only: ordinals) at `at`. Returns the rows found and, for each key, the row's index among
    /// them. In a collection without a key one of several equal rows is given.
    pub fn get(self: &Arc<Self>, at: Epoch, keys: &EncodedRows) -> Result<(RecordBatch, Vec<Option<u32>>)> {
        let _hold = self.hold(at)?;
        match (&self.base, &self.layout.key) {
            (Base::Keyed(base), CollectionKey::Columns(_)) => self.get_unique(base, at, keys),
            _ => self.get_by_scan(at, keys),
        }
    }

    fn get_unique(&self, base: &KeyedBase, at: Epoch, keys: &EncodedRows) -> Result<(RecordBatch, Vec<Option<u32>>)> {
        let mut found = Lookup::new(keys.len());
        let unknown = self.look_up_deltas(at, keys, &mut found)?;
        if !unknown.is_empty() {
            let mut sorted = unknown;
            sorted.sort_unstable_by(|left, right| keys.row(*left).cmp(keys.row(*right)));
            base.get(keys, &sorted, &mut |index, value| {
                found.base_keys.push(keys.row(index));
                found.base_values.push(value);
                found.add(index, (0, found.base_keys.len() - 1));
            })?;
        }
        let all: Vec<usize> = (0..self.layout.schema.fields().len()).collect();
        let base_columns = self.layout.decode(&found.base_keys, &found.base_values, &all)?;
        let columns = if found.deltas.is_empty() {
            base_columns
        } else {
            let column = |index: usize| {
                let mut sources: Vec<&dyn Array> = vec![base_columns[index].as_ref()];
                sources.extend(found.deltas.iter().map(|(_, delta)| delta.batch().batch.column(index).as_ref()));
                interleave(&sources, &found.places)
            };
            all.into_iter().map(column).collect::<Result<_, _>>()?
        };
        let options = row_count(found.places.len());
        Ok((RecordBatch::try_new_with_options(self.layout.schema.clone(), columns, &options)?, found.rows))
    }

    /// Finds keys in the deltas, newest first; returns the indexes of those that no delta has.
    fn look_up_deltas(&self, at: Epoch, keys: &EncodedRows, found: &mut Lookup) -> Result<Vec<usize>> {
        if keys.len() > KEYS_UNDER_LOCK {
            return self.look_up_in(self.retained_upto(at)?.iter().rev(), keys, found);
        }
        let state = self.state.read();
        state.check_readable(self.id, at)?;
        self.look_up_in(state.retained.iter().rev().skip_while(|delta| delta.to > at), keys, found)
    }

    fn look_up_in<'r>(
        &self,
        newest_first: impl Iterator<Item = &'r Retained>,
        keys: &EncodedRows,
        found: &mut Lookup,
    ) -> Result<Vec<usize>> {
        let mut unknown: Vec<usize> = (0..keys.len()).collect();
        let hashes: Vec<u64> = keys.iter().map(key_hash).collect();
        for delta in newest_first {
            if unknown.is_empty() {
                break;
            }
            if !unknown.iter().any(|index| delta.filter.may_have(hashes[*index])) {
                continue;
            }
            let spilled;
            let stored = match &delta.stored {
                Some(stored) => stored,
                None => {
                    spilled = delta.load(&self.layout)?;
                    &spilled
                }
            };
            unknown.retain(|index| match stored.runs.find(keys.row(*index), hashes[*index]) {
                None => true,
                Some(run) => {
                    if let Some(row) = stored.new_row(run) {
                        found.add_from(*index, delta.to, stored, row);
                    }
                    false
                }
            });
        }
        Ok(unknown)
    }

    fn get_by_scan(self: &Arc<Self>, at: Epoch, keys: &EncodedRows) -> Result<(RecordBatch, Vec<Option<u32>>)> {
        let mut batches = Vec::new();
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys.iter() {
            let bound = || std::ops::Bound::Included(key.to_vec());
            let request = ScanRequest { key_range: Some((bound(), bound())), batch_rows: 1, ..ScanRequest::default() };
            let first = self.scan(at, request)?.next().transpose()?;
            rows.push(first.as_ref().map(|_| batches.len() as u32));
            batches.extend(first.map(|first| first.batch));
        }
        let batch = match batches.is_empty() {
            true => empty_batch(&self.layout.schema)?,
            false => arrow::compute::concat_batches(&self.layout.schema, &batches)?,
        };
        Ok((batch, rows))
    }

    /// The deltas in `after < epoch <= upto`, oldest first. [`StorageError::FallenBehind`] if some are gone. All are read into memory: where
    /// there may be many, ask with [`Self::deltas_within`].
    pub fn deltas(&self, after: Epoch, upto: Epoch) -> Result<Vec<Arc<Delta>>> {
        self.deltas_within(after, upto, usize::MAX)
    }

    /// As [`Self::deltas`], but no more than `max_bytes` of them, and at least one: go on behind the last one's `to`.
    pub fn deltas_within(&self, after: Epoch, upto: Epoch, max_bytes: usize) -> Result<Vec<Arc<Delta>>> {
        let wanted: Vec<Retained> = {
            let state = self.state.read();
            state.check_readable(self.id, after)?;
            let mut bytes = 0_usize;
            let first = state.retained.partition_point(|delta| delta.to <= after);
            let fits = |delta: &&Retained| {
                let fits = bytes == 0 || bytes.saturating_add(delta.bytes) <= max_bytes;
                bytes = bytes.saturating_add(delta.bytes);
                fits
            };
            state.retained.range(first..).take_while(|delta| delta.to <= upto).take_while(fits).cloned().collect()
        };
        wanted.iter().map(|delta| Ok(delta.load(&self.layout)?.delta.clone())).collect()
    }
}

/// Rows found by key, by where they are: source 0 is the base, others are deltas.
struct Lookup {
    places: Vec<(usize, usize)>,
    /// Index in `places` for each key.
    rows: Vec<Option<u32>>,
    base_keys: EncodedRows,
    base_values: EncodedRows,
    deltas: Vec<(Epoch, Arc<StoredDelta>)>,
}

impl Lookup {
    fn new(keys: usize) -> Self {
        let (base_keys, base_values) = (EncodedRows::new(), EncodedRows::new());
        Self { places: Vec::with_capacity(keys), rows: vec![None; keys], base_keys, base_values, deltas: Vec::new() }
    }

    fn add(&mut self, key: usize, place: (usize, usize)) {
        self.rows[key] = Some(self.places.len() as u32);
        self.places.push(place);
    }

    fn add_from(&mut self, key: usize, to: Epoch, stored: &Arc<StoredDelta>, row: usize) {
        if self.deltas.last().is_none_or(|(last, _)| *last != to) {
            self.deltas.push((to, stored.clone()));
        }
        self.add(key, (self.deltas.len(), row));
    }
}
