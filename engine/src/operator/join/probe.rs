//! The way of one chunk through a join: its keys are looked up on the other side, its pairs come out, and at last its rows are stored. It goes
//! in steps of bounded size, and the place reached is kept here.

use arrow::{
    array::{ArrayRef, UInt32Array},
    compute::take,
};
use millpond_storage::encoding::EncodedRows;

use super::{
    Join, Kept,
    candidates::Candidates,
    other,
    side::{Layout, StoredRow},
};
use crate::{
    accumulator::bytes::{get_i64, put_integer},
    chunk::Chunk,
    error::Result,
    operator::{Output, Progress, distinct_keys::DistinctKeys},
};

/// Batches of candidates handled in one call, whether or not anything comes of them.
const BATCHES_PER_CALL: usize = 32;
/// The key number of a row that cannot match.
const NO_KEY: u32 = u32::MAX;

/// Whether the rows of the other side under a key get their first match or lose their last, by the change of the weight under it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    None,
    Matched,
    Unmatched,
}

/// A chunk on its way.
pub(super) struct Work {
    port: usize,
    chunk: Chunk,
    keys: DistinctKeys,
    key_of_row: Vec<u32>,
    /// Rows by key: those of key k are `rows[starts[k]..starts[k + 1]]`.
    rows: Vec<u32>,
    starts: Vec<u32>,
    turns: Vec<Turn>,
    /// Matches of each row, as far as known.
    matches: Vec<i64>,
    next_key: usize,
    after: Option<Vec<u8>>,
}

/// Rows of one side that come out or go back because of their matches.
#[derive(Default)]
struct KeptRows {
    rows: Vec<u32>,
    weights: Vec<i64>,
    marks: Vec<bool>,
}

impl KeptRows {
    fn push(&mut self, row: u32, weight: i64, mark: bool) {
        self.rows.push(row);
        self.weights.push(weight);
        self.marks.push(mark);
    }

    /// A row of this weight that has just appeared.
    fn appear(&mut self, kept: Kept, row: u32, weight: i64, matched: bool) {
        match kept {
            Kept::No => {}
            Kept::Mark => self.push(row, weight, matched),
            Kept::Semi if matched => self.push(row, weight, true),
            Kept::Padded | Kept::Anti if !matched => self.push(row, weight, false),
            Kept::Semi | Kept::Padded | Kept::Anti => {}
        }
    }

    /// A row of this weight that was there and is now matched, or no longer.
    fn turn(&mut self, kept: Kept, row: u32, weight: i64, matched: bool) {
        self.appear(kept, row, -weight, !matched);
        self.appear(kept, row, weight, matched);
    }
}

impl Work {
    fn sign(&self, row: usize) -> i64 {
        self.chunk.ops().map_or(1, |ops| i64::from(ops[row].sign()))
    }

    fn rows_of(&self, key: usize) -> &[u32] {
        &self.rows[self.starts[key] as usize..self.starts[key + 1] as usize]
    }
}

impl Join {
    /// Takes a chunk: finds its keys and loads the state under them.
    pub(super) fn begin(&mut self, port: usize, chunk: Chunk) -> Result<()> {
        let side = &self.sides[port];
        let mut encoded = EncodedRows::new();
        side.encode_keys(chunk.batch(), &mut encoded)?;
        let matchable = side.matchable(chunk.batch());
        let mut keys = DistinctKeys::default();
        let number = |(row, key): (usize, &[u8])| match matchable.as_ref().is_none_or(|valid| valid.is_valid(row)) {
            true => keys.intern(key),
            false => NO_KEY,
        };
        let key_of_row: Vec<u32> = encoded.iter().enumerate().map(number).collect();
        let (rows, starts) = group_rows(&key_of_row, keys.keys().len());
        let count = keys.keys().len();
        let matches = vec![0; if side.kept == Kept::No { 0 } else { chunk.num_rows() }];
        let turns = vec![Turn::None; count];
        let mut work = Work { port, chunk, keys, key_of_row, rows, starts, turns, matches, next_key: 0, after: None };
        self.load_weights(&work)?;
        self.count_by_key(&mut work)?;
        self.load_rows(&work)?;
        self.work = Some(work);
        Ok(())
    }

    fn load_weights(&mut self, work: &Work) -> Result<()> {
        for weights in self.sides.iter_mut().filter_map(|side| side.weights.as_mut()) {
            weights.load(work.keys.keys())?;
        }
        Ok(())
    }

    fn load_rows(&mut self, work: &Work) -> Result<()> {
        let (port, keys, crosses) = (work.port, work.keys.keys(), self.crosses());
        if let Some(rows) = &mut self.sides[other(port)].rows {
            if crosses {
                rows.load(keys)?;
            } else {
                let turned = keys.iter().zip(&work.turns).filter(|(_, turn)| **turn != Turn::None);
                rows.load(&turned.map(|(key, _)| key).collect())?;
            }
        }
        let side = &mut self.sides[port];
        if let (Some(rows), Layout::Weighted) = (&mut side.rows, side.layout) {
            rows.load(keys)?;
        }
        Ok(())
    }

    /// Whether every row of the chunk meets every stored row under its key; if not, only keys matter that get their first row or lose
    /// their last.
    fn crosses(&self) -> bool {
        self.pairs || self.condition.is_some()
    }

    /// Without a condition, weights per key say which rows match: those of the chunk, and those of the other side whose key gets its first
    /// row on this side or loses its last.
    fn count_by_key(&mut self, work: &mut Work) -> Result<()> {
        let port = work.port;
        if self.counts_by_key(port)
            && let Some(weights) = &self.sides[other(port)].weights
        {
            for (row, key) in work.key_of_row.iter().enumerate().filter(|(_, key)| **key != NO_KEY) {
                work.matches[row] = read_weight(weights.get(work.keys.keys().row(*key as usize)))?;
            }
        }
        if !self.counts_by_key(other(port)) {
            return Ok(());
        }
        let times = match &self.sides[port] {
            side if side.rows.is_none() => side.expiry.as_ref().map(|expiry| expiry.times(work.chunk.batch())).transpose()?,
            _ => None,
        };
        let side = &mut self.sides[port];
        let Some(weights) = &mut side.weights else { return Ok(()) };
        let mut bytes = Vec::new();
        for number in 0..work.keys.keys().len() {
            let key = work.keys.keys().row(number);
            let change: i64 = work.rows_of(number).iter().map(|row| work.sign(*row as usize)).sum();
            let before = read_weight(weights.get(key))?;
            let after = before + change;
            work.turns[number] = match (before > 0, after > 0) {
                (false, true) => Turn::Matched,
                (true, false) => Turn::Unmatched,
                (true, true) | (false, false) => Turn::None,
            };
            if after == 0 {
                weights.delete(key);
                continue;
            }
            bytes.clear();
            put_integer(&mut bytes, after.into());
            weights.put(key, &bytes);
            if let (0, Some(expiry), Some(times)) = (before, &mut side.expiry, &times) {
                expiry.note(times, work.rows_of(number)[0] as usize, key, &[]);
            }
        }
        side.write_expiry();
        Ok(())
    }

    /// Goes on with the chunk until it is done or the output is full.
    pub(super) fn go_on(&mut self, out: &mut Output) -> Result<Progress> {
        for _ in 0..BATCHES_PER_CALL {
            self.owed.drain(out)?;
            if out.is_full() && (self.work.is_some() || !self.owed.is_empty()) {
                return Ok(Progress::More);
            }
            let Some(mut work) = self.work.take() else { return Ok(Progress::Done) };
            if self.gather(&mut work)? {
                self.join_candidates(&mut work, out)?;
                self.work = Some(work);
            } else {
                self.finish(work, out)?;
            }
        }
        Ok(Progress::More)
    }

    /// Gathers candidates for the next keys. Returns whether there are any.
    fn gather(&mut self, work: &mut Work) -> Result<bool> {
        let side = &self.sides[other(work.port)];
        let crosses = self.crosses();
        let keeps_places = side.counts_matches;
        self.candidates.clear();
        if side.rows.is_none() {
            return Ok(false);
        }
        while self.candidates.has_room() && work.next_key < work.keys.keys().len() {
            let number = work.next_key;
            if !crosses && work.turns[number] == Turn::None {
                work.next_key += 1;
                continue;
            }
            let mut after = work.after.take();
            let partners = if crosses { work.rows_of(number) } else { &[] };
            let key = work.keys.keys().row(number);
            let found = self.candidates.scan(side, number as u32, key, partners, keeps_places, &mut after)?;
            work.after = after;
            if !found.more {
                work.next_key += 1;
            }
        }
        Ok(!self.candidates.rows.is_empty())
    }

    fn join_candidates(&mut self, work: &mut Work, out: &mut Output) -> Result<()> {
        let (port, counterpart) = (work.port, other(work.port));
        if let Some(condition) = &self.condition {
            self.candidates.apply(condition, port, work.chunk.batch(), &self.sides[counterpart])?;
        }
        if self.pairs && !self.candidates.stored.is_empty() {
            self.emit_pairs(work, out)?;
        }
        if self.counts_with_rows(port) {
            for (stored, row) in self.candidates.stored.iter().zip(&self.candidates.probing) {
                work.matches[*row as usize] += self.candidates.weights[*stored as usize];
            }
        }
        let turned = match (self.counts_with_rows(counterpart), self.counts_by_key(counterpart)) {
            (true, _) => self.count_stored_matches(work)?,
            (false, true) => self.turned_by_key(work),
            (false, false) => return Ok(()),
        };
        self.emit_kept_stored(counterpart, turned, out)
    }

    fn emit_pairs(&mut self, work: &Work, out: &mut Output) -> Result<()> {
        let Candidates { stored, probing, weights, .. } = &self.candidates;
        let (port, counterpart) = (work.port, other(work.port));
        let wanted = self.output.columns_of(counterpart);
        let decoded = self.candidates.stored_columns(&self.sides[counterpart], stored, &wanted)?;
        let rows = UInt32Array::from(probing.clone());
        let column = |side: usize, input: usize| -> Result<Option<ArrayRef>> {
            if side == port {
                return Ok(Some(take(work.chunk.batch().column(input), &rows, None)?));
            }
            Ok(wanted.iter().position(|column| *column == input).map(|place| decoded[place].clone()))
        };
        let batch = self.output.batch(stored.len(), column, None)?;
        let weight = |(stored, row): (&u32, &u32)| weights[*stored as usize] * work.sign(*row as usize);
        let weights = stored.iter().zip(probing).map(weight).collect();
        self.owed.emit(batch, weights, out)
    }

    /// Adds the chunk's rows to the match counts of stored rows; which of these are matched now, or no longer.
    fn count_stored_matches(&mut self, work: &Work) -> Result<KeptRows> {
        let side = &mut self.sides[other(work.port)];
        let candidates = &self.candidates;
        let mut changes = vec![0; candidates.rows.len()];
        for (stored, row) in candidates.stored.iter().zip(&candidates.probing) {
            changes[*stored as usize] += work.sign(*row as usize);
        }
        let mut turned = KeptRows::default();
        let mut buffer = Vec::new();
        for (stored, change) in changes.iter().enumerate().filter(|(_, change)| **change != 0) {
            let (before, weight) = (candidates.matches[stored], candidates.weights[stored]);
            let matches = before + change;
            let row = StoredRow { row: candidates.rows.row(stored), weight, matches };
            let key = work.keys.keys().row(candidates.keys[stored] as usize);
            side.write_matches(key, candidates.suffixes.row(stored), &row, &mut buffer);
            if (before > 0) != (matches > 0) {
                turned.turn(side.kept, stored as u32, weight, matches > 0);
            }
        }
        Ok(turned)
    }

    fn turned_by_key(&self, work: &Work) -> KeptRows {
        let kept = self.sides[other(work.port)].kept;
        let mut turned = KeptRows::default();
        for (stored, (key, weight)) in self.candidates.keys.iter().zip(&self.candidates.weights).enumerate() {
            match work.turns[*key as usize] {
                Turn::None => {}
                Turn::Matched => turned.turn(kept, stored as u32, *weight, true),
                Turn::Unmatched => turned.turn(kept, stored as u32, *weight, false),
            }
        }
        turned
    }

    fn emit_kept_stored(&mut self, side: usize, kept: KeptRows, out: &mut Output) -> Result<()> {
        if kept.rows.is_empty() {
            return Ok(());
        }
        let wanted = self.output.columns_of(side);
        let decoded = self.candidates.stored_columns(&self.sides[side], &kept.rows, &wanted)?;
        let column = |from: usize, input: usize| {
            Ok(wanted.iter().position(|column| from == side && *column == input).map(|place| decoded[place].clone()))
        };
        let batch = self.output.batch(kept.rows.len(), column, Some(&kept.marks))?;
        self.owed.emit(batch, kept.weights, out)
    }

    /// All keys have been looked up: what the chunk's rows owe for themselves, and then they are stored.
    fn finish(&mut self, work: Work, out: &mut Output) -> Result<()> {
        let side = &mut self.sides[work.port];
        let batch = work.chunk.batch();
        let mut kept = KeptRows::default();
        for (row, matches) in work.matches.iter().enumerate() {
            kept.appear(side.kept, row as u32, work.sign(row), *matches > 0);
        }
        let key_of = |row: usize| match work.key_of_row[row] {
            NO_KEY => None,
            key => Some(work.keys.keys().row(key as usize)),
        };
        side.store(batch, key_of, |row| work.sign(row), &work.matches)?;
        if kept.rows.is_empty() {
            return Ok(());
        }
        let rows = UInt32Array::from(kept.rows);
        let column = |from: usize, input: usize| -> Result<Option<ArrayRef>> {
            if from != work.port {
                return Ok(None);
            }
            let column = batch.column(input);
            Ok(Some(if rows.len() == batch.num_rows() { column.clone() } else { take(column, &rows, None)? }))
        };
        let output = self.output.batch(rows.len(), column, Some(&kept.marks))?;
        self.owed.emit(output, kept.weights, out)
    }
}

/// Rows by key, and where those of each key start. Rows without a key are left out.
fn group_rows(key_of_row: &[u32], keys: usize) -> (Vec<u32>, Vec<u32>) {
    let mut starts = vec![0u32; keys + 1];
    for key in key_of_row.iter().filter(|key| **key != NO_KEY) {
        starts[*key as usize + 1] += 1;
    }
    for key in 0..keys {
        starts[key + 1] += starts[key];
    }
    let mut places = starts.clone();
    let mut rows = vec![0; starts[keys] as usize];
    for (row, key) in key_of_row.iter().enumerate().filter(|(_, key)| **key != NO_KEY) {
        let place = &mut places[*key as usize];
        rows[*place as usize] = row as u32;
        *place += 1;
    }
    (rows, starts)
}

fn read_weight(bytes: Option<&[u8]>) -> Result<i64> {
    bytes.map_or(Ok(0), |mut bytes| get_i64(&mut bytes))
}
