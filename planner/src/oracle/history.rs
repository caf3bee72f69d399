//! Random histories of the bench's tables: few distinct values, so that rows meet, and NULLs among them.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{ArrayRef, Int32Array, Int64Array, StringViewArray},
    datatypes::{DataType, SchemaRef},
    record_batch::RecordBatch,
};
use millpond_engine::chunk::{Chunk, Op};

use crate::test_bench::Bench;

/// A value of a test's row.
type Value = Option<i64>;

/// A small generator of numbers (xorshift), so that a seed means the same everywhere.
#[derive(Clone)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// The tables and their contents.
pub(super) struct History {
    tables: BTreeMap<u64, Table>,
    numbers: Numbers,
}

struct Table {
    schema: SchemaRef,
    keyed: bool,
    rows: Vec<Vec<Value>>,
    next_id: i64,
}

impl History {
    pub(super) fn new(bench: &Bench, seed: u64) -> Self {
        let table = |name: &str, keyed: bool| {
            let object = bench.object(name);
            (object.id, Table { schema: object.arrow_schema(), keyed, rows: Vec::new(), next_id: 1 })
        };
        let tables = [table("t", true), table("u", true), table("bag", false)].into_iter().collect();
        Self { tables, numbers: Numbers::new(seed) }
    }

    /// What a table contains.
    pub(super) fn contents(&self, id: u64) -> Option<RecordBatch> {
        self.tables.get(&id).map(|table| batch(&table.schema, &table.rows))
    }

    /// Changes every table a little; gives the changes.
    pub(super) fn step(&mut self) -> BTreeMap<u64, Chunk> {
        let numbers = &mut self.numbers;
        self.tables.iter_mut().map(|(id, table)| (*id, table.change(numbers))).collect()
    }
}

impl Table {
    fn change(&mut self, numbers: &mut Numbers) -> Chunk {
        let (mut rows, mut ops) = (Vec::new(), Vec::new());
        for _ in 0..numbers.below(5) {
            match numbers.below(5) {
                0..=2 => {
                    let row = self.new_row(numbers);
                    self.rows.push(row.clone());
                    rows.push(row);
                    ops.push(Op::Insert);
                }
                action if !self.rows.is_empty() => {
                    let at = numbers.below(self.rows.len() as u64) as usize;
                    let old = self.rows.swap_remove(at);
                    rows.push(old.clone());
                    if action == 3 {
                        ops.push(Op::Delete);
                        continue;
                    }
                    let mut new = self.new_row(numbers);
                    if self.keyed {
                        new[0] = old[0];
                    }
                    self.rows.push(new.clone());
                    rows.push(new);
                    ops.extend([Op::UpdateBefore, Op::UpdateAfter]);
                }
                _ => {}
            }
        }
        Chunk::new(batch(&self.schema, &rows), ops)
    }

    fn new_row(&mut self, numbers: &mut Numbers) -> Vec<Value> {
        let mut row: Vec<Value> =
            (0..self.schema.fields().len()).map(|_| (numbers.below(6) > 0).then(|| numbers.below(6) as i64)).collect();
        if self.keyed {
            row[0] = Some(self.next_id);
            self.next_id += 1;
        }
        row
    }
}

fn batch(schema: &SchemaRef, rows: &[Vec<Value>]) -> RecordBatch {
    let column = |at: usize| -> ArrayRef {
        let values = rows.iter().map(|row| row[at]);
        match schema.field(at).data_type() {
            DataType::Int32 => Arc::new(values.map(|value| value.map(|value| value as i32)).collect::<Int32Array>()),
            DataType::Int64 => Arc::new(values.collect::<Int64Array>()),
            _ => Arc::new(values.map(|value| value.map(|value| format!("s{value}"))).collect::<StringViewArray>()),
        }
    };
    let columns = (0..schema.fields().len()).map(column).collect();
    RecordBatch::try_new(Arc::clone(schema), columns).expect("the columns are the schema's")
}
