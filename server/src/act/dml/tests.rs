//! Uncommitted changes: their net effect, what is undone, and what a scan sees of them.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, Int32Array, RecordBatch},
    datatypes::{DataType, Field, Int32Type, Schema, SchemaRef},
};

use super::{
    changes::{ChangedContents, Changes, Identity, Mark},
    keyed::{Duplicate, KeyState, KeyedChanges},
};
use crate::{
    error::Result,
    relation::{
        contents::{Batches, Contents},
        key_filter::KeyPart,
    },
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int32, false), Field::new("v", DataType::Int32, true)]))
}

fn rows(values: &[(i32, i32)]) -> RecordBatch {
    let column = |f: fn(&(i32, i32)) -> i32| Arc::new(values.iter().map(f).collect::<Int32Array>()) as ArrayRef;
    RecordBatch::try_new(schema(), vec![column(|(k, _)| *k), column(|(_, v)| *v)]).unwrap()
}

fn values(batch: &RecordBatch) -> Vec<(i32, i32)> {
    let column = |number: usize| batch.column(number).as_primitive::<Int32Type>().values().to_vec();
    column(0).into_iter().zip(column(1)).collect()
}

fn keyed() -> Identity {
    Identity::new(schema(), vec![0]).unwrap()
}

fn delta(changes: &Changes) -> Vec<(i32, i32, i8)> {
    let mut all = Vec::new();
    for signed in changes.delta().unwrap() {
        for (row, (k, v)) in values(&signed.batch).into_iter().enumerate() {
            all.push((k, v, signed.signs.as_ref().map_or(1, |signs| signs[row])));
        }
    }
    all
}

fn insert(changes: &mut KeyedChanges, identity: &Identity, new: &[(i32, i32)], committed: &[i32]) -> Result<(), Duplicate> {
    let batch = rows(new);
    let keys = identity.encode(&batch).unwrap();
    changes.insert(&batch, &keys, |row| committed.contains(&new[row].0))
}

fn delete(changes: &mut KeyedChanges, identity: &Identity, old: &[(i32, i32)]) {
    let batch = rows(old);
    changes.delete(&batch, &identity.encode(&batch).unwrap());
}

#[test]
fn an_update_may_pass_through_taken_keys() {
    let (identity, mut changes) = (keyed(), KeyedChanges::new());
    delete(&mut changes, &identity, &[(1, 10), (2, 20)]);
    insert(&mut changes, &identity, &[(2, 10), (3, 20)], &[1, 2]).unwrap();
    let changes = Changes::Keyed(changes);
    assert_eq!(delta(&changes), [(1, 10, -1), (2, 20, -1), (2, 10, 1), (3, 20, 1)]);
}

#[test]
fn taken_keys_are_found_committed_and_in_the_statement() {
    let (identity, mut changes) = (keyed(), KeyedChanges::new());
    assert_eq!(insert(&mut changes, &identity, &[(1, 1), (2, 2)], &[2]), Err(Duplicate(1)));
    let mut changes = KeyedChanges::new();
    assert_eq!(insert(&mut changes, &identity, &[(5, 1), (5, 2)], &[]), Err(Duplicate(1)));
    delete(&mut changes, &identity, &[(5, 1)]);
    insert(&mut changes, &identity, &[(5, 3)], &[]).unwrap();
    assert_eq!(delta(&Changes::Keyed(changes)), [(5, 3, 1)]);
}

#[test]
fn undoing_goes_back_to_the_mark() {
    let (identity, mut changes) = (keyed(), KeyedChanges::new());
    insert(&mut changes, &identity, &[(1, 1)], &[]).unwrap();
    let mark = changes.mark();
    delete(&mut changes, &identity, &[(1, 1), (7, 70)]);
    insert(&mut changes, &identity, &[(1, 2), (8, 80)], &[]).unwrap();
    changes.undo_to(mark);
    let key = |k: i32| identity.encode(&rows(&[(k, 0)])).unwrap().row(0).to_vec();
    assert!(matches!(changes.state(&key(7)), KeyState::Present(_)), "the committed row is there again");
    assert_eq!(changes.state(&key(8)), KeyState::Absent);
    assert_eq!(delta(&Changes::Keyed(changes)), [(1, 1, 1)]);
}

#[test]
fn a_bag_deletes_as_often_as_it_is_told() {
    let identity = Identity::new(schema(), Vec::new()).unwrap();
    let mut changes = Changes::new(&identity);
    let Changes::Bag(bag) = &mut changes else { panic!("a table without a key is a bag") };
    bag.insert(&rows(&[(1, 1), (1, 1)]));
    bag.delete(&rows(&[(1, 1), (2, 2)]));
    let shared = Arc::new(changes.clone());
    let contents = ChangedContents::new(Arc::new(Fixed(vec![rows(&[(2, 2), (2, 2), (3, 3)])], Vec::new())), shared, Arc::new(identity));
    assert_eq!(all(&contents, KeyPart::Everything, None), [(1, 1), (2, 2), (3, 3)]);
    changes.undo_to(Mark::Start);
    assert!(changes.is_empty());
}

#[test]
fn a_scan_sees_its_own_changes() {
    let identity = Arc::new(keyed());
    let mut changes = KeyedChanges::new();
    delete(&mut changes, &identity, &[(1, 10), (2, 20)]);
    insert(&mut changes, &identity, &[(2, 21), (4, 40)], &[]).unwrap();
    let committed = Arc::new(Fixed(vec![rows(&[(1, 10), (2, 20), (3, 30)])], vec![0]));
    let contents = ChangedContents::new(committed, Arc::new(Changes::Keyed(changes)), identity.clone());
    assert_eq!(all(&contents, KeyPart::Everything, None), [(2, 21), (3, 30), (4, 40)]);
    assert_eq!(all(&contents, KeyPart::Everything, Some(2)).len(), 2);
    let key = |k: i32| identity.encode(&rows(&[(k, 0)])).unwrap().row(0).to_vec();
    assert_eq!(all(&contents, KeyPart::Points(vec![key(1), key(2), key(3)]), None), [(2, 21), (3, 30)]);
}

fn all(contents: &dyn Contents, part: KeyPart, limit: Option<usize>) -> Vec<(i32, i32)> {
    let mut found: Vec<_> = contents.open(part, None, limit).unwrap().flat_map(|batch| values(&batch.unwrap())).collect();
    found.sort_unstable();
    found
}

/// Contents that stand still.
#[derive(Debug)]
struct Fixed(Vec<RecordBatch>, Vec<usize>);

impl Contents for Fixed {
    fn schema(&self) -> SchemaRef {
        schema()
    }

    fn key(&self) -> &[usize] {
        &self.1
    }

    fn open(&self, part: KeyPart, _projection: Option<Vec<usize>>, _limit: Option<usize>) -> Result<Batches> {
        let wanted = move |k: i32| match &part {
            KeyPart::Points(points) => points.contains(&keyed().encode(&rows(&[(k, 0)])).unwrap().row(0).to_vec()),
            _ => true,
        };
        let kept: Vec<RecordBatch> =
            self.0.iter().map(|batch| rows(&values(batch).into_iter().filter(|(k, _)| wanted(*k)).collect::<Vec<_>>())).collect();
        Ok(Box::new(kept.into_iter().map(Ok)))
    }

    fn row_estimate(&self) -> u64 {
        3
    }

    fn byte_estimate(&self) -> u64 {
        24
    }
}
