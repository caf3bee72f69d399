//! Random histories of changes, holds, folds and restarts, compared with a list of rows per epoch.

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

/// What a collection should contain, and random changes of it.
#[derive(Clone)]
pub(super) struct Model {
    key: CollectionKey,
    rows: Vec<Row>,
    /// Contents, and what was given to `seal`, by epoch.
    pub(super) epochs: BTreeMap<u64, Vec<Row>>,
    pub(super) changes: BTreeMap<u64, Vec<SignedBatch>>,
}

impl Model {
    pub(super) fn new(key: CollectionKey) -> Self {
        Self { key, rows: Vec::new(), epochs: BTreeMap::from([(0, Vec::new())]), changes: BTreeMap::new() }
    }

    fn random_row(&self, rng: &mut StdRng) -> Row {
        let scores = [None, Some(0.0), Some(-0.0), Some(1.5), Some(f64::INFINITY)];
        let note = ["", "a note", "a note that is longer than twelve bytes"][rng.random_range(0..3)];
        Row {
            id: rng.random_range(-3..4),
            name: ["", "x", "a longer name than fits a view"][rng.random_range(0..3)].into(),
            score: scores[rng.random_range(0..scores.len())],
            note: rng.random_bool(0.7).then(|| note.into()),
        }
    }

    /// Changes of one epoch, as batches in an order that need not make sense.
    pub(super) fn change(&mut self, rng: &mut StdRng, epoch: u64) {
        let mut changes = Vec::new();
        for _ in 0..rng.random_range(0..8) {
            let row = self.random_row(rng);
            let same_key = |other: &Row| other.id == row.id && other.name == row.name;
            match self.key {
                CollectionKey::AppendOnly => {}
                CollectionKey::Columns(_) => {
                    if let Some(index) = self.rows.iter().position(same_key) {
                        changes.push((self.rows.remove(index), -1));
                        if rng.random_bool(0.3) {
                            continue;
                        }
                    }
                }
                CollectionKey::WholeRow => {
                    if !self.rows.is_empty() && rng.random_bool(0.4) {
                        changes.push((self.rows.remove(rng.random_range(0..self.rows.len())), -1));
                        continue;
                    }
                }
            }
            self.rows.push(row.clone());
            changes.push((row, 1));
        }
        if self.key == CollectionKey::WholeRow {
            // Across inputs no order is promised.
            for index in (1..changes.len()).rev() {
                changes.swap(index, rng.random_range(0..=index));
            }
        }
        let cut = rng.random_range(0..=changes.len());
        let batches = [&changes[..cut], &changes[cut..]].into_iter().filter(|part| !part.is_empty()).map(signed);
        self.changes.insert(epoch, batches.collect());
        self.epochs.insert(epoch, self.rows.clone());
    }

    pub(super) fn seal(&self, collection: &Collection, epoch: u64) {
        collection.seal(Epoch(epoch), self.changes[&epoch].clone(), Some((0, epoch as i64))).unwrap();
    }

    /// The contents at an epoch that may lie between those that changed something.
    pub(super) fn at(&self, epoch: Epoch) -> &[Row] {
        self.epochs.range(..=epoch.0).next_back().unwrap().1
    }

    /// Compares every readable epoch, and the deltas between them.
    pub(super) fn check(&self, collection: &Arc<Collection>, seed: u64) {
        let (since, upper) = (collection.since(), collection.upper());
        let mut before: Option<(Epoch, Bag)> = None;
        for epoch in (since.0..=upper.0).map(Epoch) {
            if !collection.readable_at(epoch) {
                continue;
            }
            let rows = contents(collection, epoch);
            assert_eq!(texts(&rows), texts(self.at(epoch)), "seed {seed}, epoch {epoch} of {since}..={upper}");
            if self.key == CollectionKey::AppendOnly {
                assert_eq!(rows, self.at(epoch), "seed {seed}: order of appending");
            }
            if let Some((from, mut changed)) = before {
                let deltas = collection.deltas(from, epoch).unwrap();
                deltas.iter().for_each(|delta| apply(&mut changed, delta));
                assert_eq!(changed, bag(&rows), "seed {seed}, deltas from {from} to {epoch}");
            }
            self.check_get(collection, epoch, seed);
            before = Some((epoch, bag(&rows)));
        }
        assert_eq!(collection.row_estimate(), self.at(upper).len() as u64, "seed {seed}");
    }

    fn check_get(&self, collection: &Arc<Collection>, epoch: Epoch, seed: u64) {
        if self.key == CollectionKey::AppendOnly {
            return;
        }
        let mut asked: Vec<Row> = self.at(epoch).to_vec();
        asked.extend([row(2, "x", 0.0), row(77, "nobody", 0.0), row(-1, "", 1.5)]);
        let columns = match &self.key {
            CollectionKey::Columns(columns) => columns.clone(),
            _ => (0..4).collect(),
        };
        let columns: Vec<ArrayRef> = columns.iter().map(|column| batch(&asked).column(*column).clone()).collect();
        let keys = collection.key_codec().encode(&columns).unwrap();
        let (found, indexes) = collection.get(epoch, &keys).unwrap();
        let found = rows_of(&found);
        let equal = |left: &Row, right: &Row| match self.key {
            CollectionKey::Columns(_) => left.id == right.id && left.name == right.name,
            _ => left == right,
        };
        for (asked, index) in asked.iter().zip(indexes) {
            let expected: Vec<_> = self.at(epoch).iter().filter(|row| equal(row, asked)).collect();
            let found = index.map(|index| &found[index as usize]);
            assert!(expected.is_empty() == found.is_none(), "seed {seed}, epoch {epoch}: {asked:?} is {found:?}, not {expected:?}");
            assert!(found.is_none_or(|found| expected.contains(&found)), "seed {seed}: {found:?} is none of {expected:?}");
        }
    }
}

pub(super) const KEYS: [fn() -> CollectionKey; 3] = [unique, || CollectionKey::WholeRow, || CollectionKey::AppendOnly];

fn run(seed: u64, budget_bytes: usize, durable_deltas: bool) {
    let rng = &mut StdRng::seed_from_u64(seed);
    let place = Place::new(budget_bytes);
    let key = KEYS[seed as usize % 3]();
    let open = || place.try_open(place.spec(key.clone(), durable_deltas)).unwrap();
    let mut model = Model::new(key.clone());
    let mut collection = open();
    let mut holds: Vec<Hold> = Vec::new();
    let mut epoch = 0;
    for _ in 0..60 {
        match rng.random_range(0..12) {
            0..5 => {
                epoch += if rng.random_bool(0.7) { 1 } else { rng.random_range(1..4) };
                model.change(rng, epoch);
                model.seal(&collection, epoch);
            }
            5 => {
                epoch += rng.random_range(1..3);
                collection.advance(Epoch(epoch));
            }
            6 => holds.extend(collection.hold(Epoch(rng.random_range(collection.since().0..=epoch)))),
            7 if !holds.is_empty() => drop(holds.swap_remove(rng.random_range(0..holds.len()))),
            8 => {
                place.pass_time();
                collection.fold().unwrap();
            }
            9 => assert_eq!(collection.flush().unwrap(), Epoch(epoch)),
            10 => {
                holds.clear();
                collection.flush().unwrap();
                drop(collection);
                collection = open();
                let recovered = collection.upper().0;
                assert!(!durable_deltas || recovered == epoch, "seed {seed}: {recovered} of {epoch}");
                for (again, _) in model.changes.range(recovered + 1..) {
                    model.seal(&collection, *again);
                }
                collection.advance(Epoch(epoch));
            }
            _ => {}
        }
        if let Some(hold) = holds.iter().map(Hold::epoch).min() {
            assert!(collection.since() <= hold, "seed {seed}: held at {hold}");
        }
        if rng.random_bool(0.3) {
            model.check(&collection, seed);
        }
    }
    model.check(&collection, seed);
    assert_eq!(collection.upper(), Epoch(epoch));
}

#[test]
fn views_agree_with_the_model() {
    (0..30).for_each(|seed| run(seed, 64 << 20, true));
}

#[test]
fn tables_agree_with_the_model() {
    (100..115).for_each(|seed| run(seed, 64 << 20, false));
}

/// Every delta is out of memory as soon as it is sealed.
#[test]
fn collections_that_may_not_use_memory_agree_with_the_model() {
    (200..215).for_each(|seed| run(seed, 0, seed % 2 == 0));
}
