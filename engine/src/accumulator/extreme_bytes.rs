//! `min(x)` and `max(x)` of any type, and with deletions: the extreme value in the key encoding, whose byte order is the order wanted.
//!
//! For `max` the codec is a descending one, so that the wanted value always has the smallest bytes. Where rows are deleted, the values
//! themselves are a multiset in a state table, and `operator/aggregate` puts the head of it here.

use arrow::{
    array::{Array, ArrayRef, new_null_array},
    compute::interleave,
    datatypes::DataType,
};
use millpond_storage::encoding::key::{KeyCodec, SortColumn};

use super::{
    Accumulator, Rows,
    bytes::{get_array, get_bytes, put_bytes},
    resize_states,
};
use crate::error::Result;

/// The encoded head per slot.
pub(crate) struct ExtremeBytes {
    codec: KeyCodec,
    output: DataType,
    heads: Vec<Option<Box<[u8]>>>,
    heap_bytes: usize,
}

impl ExtremeBytes {
    /// The largest or smallest value of a type.
    pub(crate) fn new(largest: bool, data_type: DataType) -> Result<Self> {
        let codec = KeyCodec::new(vec![SortColumn { data_type: data_type.clone(), descending: largest, nulls_first: false }])?;
        Ok(Self { codec, output: data_type, heads: Vec::new(), heap_bytes: 0 })
    }

    /// The codec whose bytes are compared.
    pub(crate) fn codec(&self) -> &KeyCodec {
        &self.codec
    }

    /// The head of a slot.
    pub(crate) fn head(&self, slot: u32) -> Option<&[u8]> {
        self.heads[slot as usize].as_deref()
    }

    /// Replaces the head of a slot.
    pub(crate) fn set_head(&mut self, slot: u32, head: Option<&[u8]>) {
        let place = &mut self.heads[slot as usize];
        self.heap_bytes -= place.as_ref().map_or(0, |old| old.len());
        self.heap_bytes += head.map_or(0, <[u8]>::len);
        match (place.as_mut(), head) {
            (Some(old), Some(new)) if old.len() == new.len() => old.copy_from_slice(new),
            _ => *place = head.map(Into::into),
        }
    }

    /// Makes `value` the head if it comes before it.
    pub(crate) fn offer(&mut self, slot: u32, value: &[u8]) {
        if self.head(slot).is_none_or(|head| value < head) {
            self.set_head(slot, Some(value));
        }
    }
}

impl Accumulator for ExtremeBytes {
    fn resize(&mut self, slots: usize) {
        resize_states(&mut self.heads, slots, None);
    }

    fn clear(&mut self, slot: u32) {
        self.set_head(slot, None);
    }

    fn copy(&mut self, from: u32, to: u32) {
        let head = self.heads[from as usize].clone();
        self.set_head(to, head.as_deref());
    }

    fn update(&mut self, rows: &Rows<'_>, arguments: &[ArrayRef]) -> Result<()> {
        let encoded = self.codec.encode(&arguments[..1])?;
        let nulls = arguments[0].logical_nulls();
        rows.for_each(nulls.as_ref(), |row, slot, _| self.offer(slot as u32, encoded.row(row)));
        Ok(())
    }

    fn evaluate(&self, slots: &[u32]) -> Result<ArrayRef> {
        let heads = slots.iter().filter_map(|slot| self.head(*slot));
        let values = self.codec.decode(heads)?.swap_remove(0);
        let nothing = new_null_array(&self.output, 1);
        let mut next = 0;
        let places: Vec<(usize, usize)> = slots
            .iter()
            .map(|slot| match self.head(*slot) {
                Some(_) => {
                    next += 1;
                    (0, next - 1)
                }
                None => (1, 0),
            })
            .collect();
        if next == slots.len() { Ok(values) } else { Ok(interleave(&[&values, &nothing], &places)?) }
    }

    fn encode(&self, slot: u32, out: &mut Vec<u8>) {
        out.push(u8::from(self.head(slot).is_some()));
        if let Some(head) = self.head(slot) {
            put_bytes(out, head);
        }
    }

    fn decode(&mut self, slot: u32, input: &mut &[u8]) -> Result<()> {
        match get_array(input, 1)?[0] {
            0 => self.set_head(slot, None),
            _ => {
                let head = get_bytes(input)?;
                self.set_head(slot, Some(head));
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<Option<Box<[u8]>>>() + self.heap_bytes
    }
}
