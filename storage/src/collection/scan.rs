//! Reading a collection in key order: the base merged with the deltas after it.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, new_empty_array},
    compute::interleave,
    datatypes::SchemaRef,
    record_batch::RecordBatch,
};

use super::{
    append::Segments,
    keyed::{BaseCursor, read_count},
    layout::{Layout, row_count},
    overlay::Overlay,
    retained::Retained,
};
use crate::{
    encoding::EncodedRows,
    error::{Result, StorageError},
};

/// Lower and upper bound of encoded keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// What to read of a collection.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// Columns wanted, in this order; `None` for all.
    pub projection: Option<Vec<usize>>,
    /// Go on behind this `last_key` of an earlier scan.
    pub after_key: Option<Vec<u8>>,
    /// Only keys between these bounds: bytes of the collection's key codec, or of its first columns, which stand for all keys that begin so
    /// (append-only: ordinals, `u64` big-endian).
    pub key_range: Option<KeyRange>,
    /// Stop after so many rows, at the next border between keys.
    pub limit: Option<usize>,
    /// Rows of a batch, at most.
    pub batch_rows: usize,
}

impl Default for ScanRequest {
    fn default() -> Self {
        Self { projection: None, after_key: None, key_range: None, limit: None, batch_rows: 4096 }
    }
}

/// Rows of a scan.
#[derive(Clone, Debug)]
pub struct ScanBatch {
    /// The rows, with the columns of the projection.
    pub batch: RecordBatch,
    /// Key of the last row: where another scan can go on, if `ends_key`.
    pub last_key: Vec<u8>,
    /// The next batch begins with another key. Only equal rows of a collection without a key may be cut in two.
    pub ends_key: bool,
}

/// A running scan. It keeps what it reads from, so it sees one epoch however long it takes.
pub struct CollectionScan {
    schema: SchemaRef,
    kind: Kind,
    /// Rows to go, if limited.
    remaining: Option<usize>,
    batch_rows: usize,
    /// The last batch ended among equal rows.
    in_key: bool,
    failed: bool,
}

enum Kind {
    Keyed(Box<KeyedScan>),
    Append(Box<AppendScan>),
}

impl CollectionScan {
    pub(super) fn keyed(scan: KeyedScan, request: &ScanRequest) -> Result<Self> {
        let schema = scan.layout.projected_schema(&scan.projection)?;
        Ok(Self::new(schema, Kind::Keyed(Box::new(scan)), request))
    }

    pub(super) fn append(scan: AppendScan, request: &ScanRequest) -> Result<Self> {
        let schema = scan.layout.projected_schema(&scan.projection)?;
        Ok(Self::new(schema, Kind::Append(Box::new(scan)), request))
    }

    fn new(schema: SchemaRef, kind: Kind, request: &ScanRequest) -> Self {
        Self { schema, kind, remaining: request.limit, batch_rows: request.batch_rows.max(1), in_key: false, failed: false }
    }

    /// Schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Iterator for CollectionScan {
    type Item = Result<ScanBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        // Equal rows are not cut off by a limit: the last key would not say how many of them were read.
        let only_rest_of_key = self.remaining == Some(0);
        if self.failed || only_rest_of_key && !self.in_key {
            return None;
        }
        let rows = self.remaining.filter(|_| !only_rest_of_key).map_or(self.batch_rows, |remaining| remaining.min(self.batch_rows));
        let batch = match &mut self.kind {
            Kind::Keyed(scan) => scan.next_batch(&self.schema, rows, only_rest_of_key),
            Kind::Append(scan) => scan.next_batch(rows),
        };
        match &batch {
            Ok(Some(batch)) => {
                self.in_key = !batch.ends_key;
                self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(batch.batch.num_rows()));
            }
            Ok(None) => {}
            Err(_) => self.failed = true,
        }
        batch.transpose()
    }
}

/// The key range of a request as bytes: from, inclusive, and to, exclusive.
pub(super) fn key_bounds(request: &ScanRequest) -> (Vec<u8>, Option<Vec<u8>>) {
    let (mut from, mut to) = (Vec::new(), None);
    if let Some((lower, upper)) = &request.key_range {
        match lower {
            Bound::Included(key) => from.clone_from(key),
            Bound::Excluded(key) => match crate::state_store::prefix_end(key) {
                Some(end) => from = end,
                None => to = Some(Vec::new()),
            },
            Bound::Unbounded => {}
        }
        match upper {
            Bound::Included(key) => to = to.or_else(|| crate::state_store::prefix_end(key)),
            Bound::Excluded(key) => to = to.or_else(|| Some(key.clone())),
            Bound::Unbounded => {}
        }
    }
    if let Some(after) = &request.after_key
        && *after >= from
    {
        from.clone_from(after);
        from.push(0);
    }
    if to.as_ref().is_some_and(|to| *to < from) {
        to = Some(from.clone());
    }
    (from, to)
}

/// Base and deltas of a collection with keys, from some key on.
pub(super) struct KeyedScan {
    pub(super) layout: Arc<Layout>,
    pub(super) projection: Vec<usize>,
    pub(super) base: BaseCursor,
    pub(super) overlay: Overlay,
    /// How many of the equal rows at the current key were handed out.
    handed_out: i64,
}

/// Rows of one batch, by where they are.
#[derive(Default)]
struct Page {
    /// Rows of the base.
    keys: EncodedRows,
    values: EncodedRows,
    /// For each row: source 0 is the base; others are deltas, in the order of `deltas`.
    places: Vec<(usize, usize)>,
    /// Deltas that rows come from, with their source.
    deltas: BTreeMap<usize, usize>,
    last_key: Vec<u8>,
}

/// The row at the current key.
enum Found {
    Base,
    Delta { delta: usize, row: usize },
}

impl KeyedScan {
    pub(super) fn new(layout: Arc<Layout>, projection: Vec<usize>, base: BaseCursor, overlay: Overlay) -> Self {
        Self { layout, projection, base, overlay, handed_out: 0 }
    }

    fn next_batch(&mut self, schema: &SchemaRef, rows: usize, only_rest_of_key: bool) -> Result<Option<ScanBatch>> {
        let mut page = Page::default();
        while page.places.len() < rows {
            let Some((in_base, in_deltas)) = self.lowest() else { break };
            let (found, copies) = self.at_key(in_base, in_deltas)?;
            let room = (rows - page.places.len()) as i64;
            let copies_left = copies - self.handed_out;
            if copies_left > 0 {
                self.add(&mut page, &found, copies_left.min(room) as usize);
            }
            if copies_left > room {
                self.handed_out += room;
                break;
            }
            self.handed_out = 0;
            if in_base {
                self.base.advance()?;
            }
            if in_deltas {
                self.overlay.next_change();
            }
            if only_rest_of_key {
                break;
            }
        }
        if page.places.is_empty() {
            return Ok(None);
        }
        let batch = self.build(schema, &page)?;
        Ok(Some(ScanBatch { batch, last_key: page.last_key, ends_key: self.handed_out == 0 }))
    }

    /// Which of base and deltas has the lowest key; `None` at the end.
    fn lowest(&self) -> Option<(bool, bool)> {
        match (self.base.current(), self.overlay.peek()) {
            (None, None) => None,
            (Some(_), None) => Some((true, false)),
            (None, Some(_)) => Some((false, true)),
            (Some((key, _)), Some(change)) => {
                let order = key.cmp(self.overlay.key(change));
                Some((order.is_le(), order.is_ge()))
            }
        }
    }

    /// The row at the lowest key, and how often it is there.
    fn at_key(&self, in_base: bool, in_deltas: bool) -> Result<(Found, i64)> {
        let base_count = match self.base.current().filter(|_| in_base) {
            Some((_, value)) if !self.layout.is_unique() => read_count(value)?,
            _ => 0,
        };
        let change = self.overlay.peek().filter(|_| in_deltas);
        Ok(match change {
            None if self.layout.is_unique() => (Found::Base, 1),
            None => (Found::Base, base_count),
            Some(change) => {
                let stored = self.overlay.delta(change);
                let found = |row| Found::Delta { delta: change.delta, row };
                match stored.new_row(change.run).filter(|_| self.layout.is_unique()) {
                    Some(row) => (found(row), 1),
                    None if self.layout.is_unique() => (Found::Base, 0),
                    None => (found(stored.runs.rows(change.run).start), base_count + change.count),
                }
            }
        })
    }

    fn add(&self, page: &mut Page, found: &Found, copies: usize) {
        let (place, key) = match found {
            Found::Base => {
                let (key, value) = self.base.current().expect("the row was found there");
                page.keys.push(key);
                page.values.push(value);
                ((0, page.keys.len() - 1), key)
            }
            Found::Delta { delta, row } => {
                let source = page.deltas.len() + 1;
                let source = *page.deltas.entry(*delta).or_insert(source);
                ((source, *row), self.overlay.key(self.overlay.peek().expect("the row was found there")))
            }
        };
        page.places.extend(std::iter::repeat_n(place, copies));
        page.last_key.clear();
        page.last_key.extend_from_slice(key);
    }

    fn build(&self, schema: &SchemaRef, page: &Page) -> Result<RecordBatch> {
        let rows = page.places.len();
        let base = self.layout.decode(&page.keys, &page.values, &self.projection)?;
        let columns = if page.keys.len() == rows {
            base
        } else {
            let mut deltas: Vec<(usize, usize)> = page.deltas.iter().map(|(delta, source)| (*source, *delta)).collect();
            deltas.sort_unstable();
            let column = |(index, column): (usize, &usize)| {
                let mut sources: Vec<&dyn Array> = vec![base[index].as_ref()];
                sources.extend(deltas.iter().map(|(_, delta)| self.overlay.deltas()[*delta].batch().batch.column(*column).as_ref()));
                interleave(&sources, &page.places)
            };
            self.projection.iter().enumerate().map(column).collect::<Result<Vec<ArrayRef>, _>>()?
        };
        Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &row_count(rows))?)
    }
}

/// Segments and deltas of an append-only collection, from some ordinal on.
pub(super) struct AppendScan {
    layout: Arc<Layout>,
    projection: Vec<usize>,
    segments: Arc<Segments>,
    deltas: Vec<Retained>,
    /// The next ordinal, and the one behind the last.
    next: u64,
    end: u64,
    /// The rows that `next` is in, and the ordinal of the first of them.
    current: Option<(u64, RecordBatch)>,
}

impl AppendScan {
    /// `deltas` are those up to the epoch to be read, oldest first; `segments` contain nothing beyond it.
    pub(super) fn new(
        layout: Arc<Layout>,
        projection: Vec<usize>,
        segments: Arc<Segments>,
        deltas: Vec<Retained>,
        request: &ScanRequest,
    ) -> Self {
        let end = deltas.last().map_or(0, Retained::end_ordinal).max(segments.end());
        let (from, to) = key_bounds(request);
        let next = ordinal_at_or_above(&from).max(segments.start());
        let end = to.map_or(end, |to| end.min(ordinal_at_or_above(&to)));
        Self { layout, projection, segments, deltas, next, end, current: None }
    }

    fn next_batch(&mut self, rows: usize) -> Result<Option<ScanBatch>> {
        if self.next >= self.end {
            return Ok(None);
        }
        let (first, current) = match self.current.take() {
            Some((first, batch)) if self.next < first + batch.num_rows() as u64 => (first, batch),
            _ => self.read()?,
        };
        let offset = (self.next - first) as usize;
        let rows = rows.min(current.num_rows() - offset).min((self.end - self.next) as usize);
        let batch = current.slice(offset, rows);
        self.current = Some((first, current));
        self.next += rows as u64;
        Ok(Some(ScanBatch { batch, last_key: (self.next - 1).to_be_bytes().into(), ends_key: true }))
    }

    /// The rows that the next ordinal is in.
    fn read(&self) -> Result<(u64, RecordBatch)> {
        if self.next < self.segments.end() {
            let entries = &self.segments.segments;
            let entry = &entries[entries.partition_point(|entry| entry.first_ordinal + entry.rows <= self.next)];
            let block = entry.segment.block_of(self.next - entry.first_ordinal);
            let block = block.ok_or_else(|| StorageError::Internal(format!("row {} is in no block", self.next)))?;
            let batch = entry.segment.read(block, Some(&self.projection))?;
            return Ok((entry.first_ordinal + entry.segment.first_row(block), batch));
        }
        let delta = &self.deltas[self.deltas.partition_point(|delta| delta.end_ordinal() <= self.next)];
        let stored = delta.load(&self.layout)?;
        let mut first = delta.links.first_ordinal;
        for batch in &stored.delta.batches {
            if self.next < first + batch.num_rows() as u64 {
                return Ok((first, batch.batch.project(&self.projection)?));
            }
            first += batch.num_rows() as u64;
        }
        Err(StorageError::Internal(format!("row {} is in no delta", self.next)))
    }
}

/// The lowest ordinal whose key is not below these bytes.
fn ordinal_at_or_above(bytes: &[u8]) -> u64 {
    let mut ordinal = [0; 8];
    let length = bytes.len().min(8);
    ordinal[..length].copy_from_slice(&bytes[..length]);
    let ordinal = u64::from_be_bytes(ordinal);
    if bytes.len() > 8 { ordinal.saturating_add(1) } else { ordinal }
}

/// An empty batch of some columns.
pub(super) fn empty_batch(schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = schema.fields().iter().map(|field| new_empty_array(field.data_type())).collect();
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &row_count(0))?)
}
