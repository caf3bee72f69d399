//! Collections against a naive model, at every epoch that is readable.

mod crash;
mod model;
mod reads;

use std::{collections::BTreeMap, path::Path, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringViewArray},
    datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef},
};

use super::*;
use crate::{frame_file::FileFaults, memory::MemoryBudget, rocks::RocksShared, signed_batch::SignedBatch};

/// A row of the test relation: two columns that may be a key, two that are not.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    id: i64,
    name: String,
    score: Option<f64>,
    note: Option<String>,
}

impl Row {
    fn text(&self) -> String {
        format!("{self:?}")
    }
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("score", DataType::Float64, true),
        Field::new("name", DataType::Utf8View, false),
        Field::new("id", DataType::Int64, false),
        Field::new("note", DataType::Utf8View, true),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.score).collect::<Float64Array>()),
        Arc::new(StringViewArray::from_iter_values(rows.iter().map(|row| &row.name))),
        Arc::new(rows.iter().map(|row| row.id).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.note.clone()).collect::<StringViewArray>()),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

fn signed(changes: &[(Row, i8)]) -> SignedBatch {
    let rows: Vec<Row> = changes.iter().map(|(row, _)| row.clone()).collect();
    SignedBatch::new(batch(&rows), changes.iter().map(|(_, sign)| *sign).collect())
}

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let score = batch.column(0).as_primitive::<Float64Type>();
    let name = batch.column(1).as_string_view();
    let id = batch.column(2).as_primitive::<Int64Type>();
    let note = batch.column(3).as_string_view();
    (0..batch.num_rows())
        .map(|row| Row {
            id: id.value(row),
            name: name.value(row).into(),
            score: score.is_valid(row).then(|| score.value(row)),
            note: note.is_valid(row).then(|| note.value(row).into()),
        })
        .collect()
}

fn row(id: i64, name: &str, score: f64) -> Row {
    Row { id, name: name.into(), score: Some(score), note: None }
}

/// Where collections of a test live, and what they share.
struct Place {
    directory: tempfile::TempDir,
    budget: MemoryBudget,
    shared: Arc<RocksShared>,
    clock: Clock,
    faults: FileFaults,
}

impl Place {
    fn new(budget_bytes: usize) -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
            budget: MemoryBudget::new(budget_bytes),
            shared: RocksShared::new(4 << 20),
            clock: Clock::manual(0),
            faults: FileFaults::default(),
        }
    }

    fn spec(&self, key: CollectionKey, durable_deltas: bool) -> CollectionSpec {
        spec_at(self.directory.path(), key, durable_deltas)
    }

    fn try_open(&self, spec: CollectionSpec) -> Result<Arc<Collection>> {
        Collection::open_with(spec, &self.budget, &self.shared, self.clock.clone(), self.faults.clone())
    }

    fn open(&self, key: CollectionKey) -> Arc<Collection> {
        self.try_open(self.spec(key, true)).unwrap()
    }

    /// Makes all that is sealed old enough to be folded.
    fn pass_time(&self) {
        self.clock.advance(Duration::from_secs(31));
    }
}

fn spec_at(directory: &Path, key: CollectionKey, durable_deltas: bool) -> CollectionSpec {
    CollectionSpec { id: 7, schema: schema(), key, directory: directory.join("collections/7"), durable_deltas }
}

fn unique() -> CollectionKey {
    CollectionKey::Columns(vec![2, 1])
}

/// All rows at an epoch, checked to come in key order.
fn contents(collection: &Arc<Collection>, at: Epoch) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    for batch in collection.scan(at, ScanRequest { batch_rows: 5, ..ScanRequest::default() }).unwrap() {
        let batch = batch.unwrap();
        assert!(last.is_none_or(|last| last <= batch.last_key), "batches come in key order");
        last = Some(batch.last_key);
        if collection.key() != &CollectionKey::AppendOnly {
            let keys = collection.layout.encode_keys(&batch.batch).unwrap();
            assert!(keys.iter().zip(keys.iter().skip(1)).all(|(left, right)| left <= right), "rows come in key order");
        }
        rows.extend(rows_of(&batch.batch));
    }
    rows
}

fn texts(rows: &[Row]) -> Vec<String> {
    let mut texts: Vec<String> = rows.iter().map(Row::text).collect();
    texts.sort();
    texts
}

/// Rows and how many there are of each, by text.
type Bag = BTreeMap<String, i64>;

fn apply(bag: &mut Bag, delta: &Delta) {
    for change in &delta.batches {
        for (index, row) in rows_of(&change.batch).iter().enumerate() {
            let count = bag.entry(row.text()).or_default();
            *count += i64::from(change.sign(index));
            if *count == 0 {
                bag.remove(&row.text());
            }
        }
    }
}

fn bag(rows: &[Row]) -> Bag {
    let mut bag = Bag::new();
    rows.iter().for_each(|row| *bag.entry(row.text()).or_default() += 1);
    bag
}
