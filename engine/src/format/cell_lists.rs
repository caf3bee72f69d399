//! Array columns: a value in Postgres' literal form (`{1,NULL,"a b"}`, in CSV) or a JSON array becomes a run of element values, which are
//! built like a column of their own. One dimension only.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, ListArray, NullBufferBuilder},
    buffer::{Buffer, OffsetBuffer},
    datatypes::{DataType, FieldRef},
};

use super::{
    block::{Span, TextBlock},
    cells::{self, Cells, Refused},
    json_scan::{JsonKind, JsonReader, unescape},
};
use crate::error::Result;

/// How array values are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListSyntax {
    /// `{1,NULL,"a b"}`.
    Postgres,
    /// `[1,null,"a b"]`.
    Json,
}

/// Element texts of all rows, one after the other.
#[derive(Default)]
struct Elements {
    text: Vec<u8>,
    spans: Vec<Span>,
}

impl Elements {
    fn push(&mut self, text: &[u8]) {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        self.spans.push(Span::of_text(start, self.text.len()));
    }
}

/// Builds a list column with elements of `item`.
pub(super) fn build(item: &FieldRef, cells: Cells<'_>, syntax: ListSyntax, refused: &mut Refused) -> Result<ArrayRef> {
    let mut elements = Elements::default();
    let mut nulls = NullBufferBuilder::new(cells.len());
    let mut offsets: Vec<i32> = Vec::with_capacity(cells.len() + 1);
    offsets.push(0);
    for (row, cell) in cells.iter().enumerate() {
        let before = elements.spans.len();
        let split = cell.and_then(|text| match syntax {
            ListSyntax::Postgres => split_literal(text.trim_ascii(), &mut elements),
            ListSyntax::Json => split_json(text, item.data_type(), &mut elements),
        });
        if let (None, Some(text)) = (split, cell) {
            elements.spans.truncate(before);
            refused.add(row, || format!("malformed array literal: \"{}\"", String::from_utf8_lossy(text)));
        }
        nulls.append(split.is_some());
        // A block is below 2 GiB, and so is the number of its elements.
        offsets.push(elements.spans.len() as i32);
    }
    let block = TextBlock { text: Buffer::from_vec(elements.text), arena: Buffer::from_vec(Vec::<u8>::new()) };
    let mut refused_elements = Refused::default();
    let inner = Cells { block: &block, spans: &elements.spans, width: 1, slot: 0 };
    let values = cells::build(item.data_type(), inner, syntax, &mut refused_elements)?;
    for (element, reason) in refused_elements.iter() {
        let row = offsets.partition_point(|offset| *offset as usize <= element) - 1;
        refused.add(row, || reason.to_owned());
    }
    let array = ListArray::try_new(item.clone(), OffsetBuffer::new(offsets.into()), values, nulls.finish())?;
    Ok(Arc::new(array))
}

/// Splits `{...}` into elements; `None` if it is malformed or has more than one dimension.
fn split_literal(text: &[u8], elements: &mut Elements) -> Option<()> {
    let inside = text.strip_prefix(b"{")?.strip_suffix(b"}")?;
    if inside.trim_ascii().is_empty() {
        return Some(());
    }
    let mut rest = inside;
    loop {
        rest = rest.trim_ascii_start();
        let mut element = Vec::new();
        let quoted = rest.first() == Some(&b'"');
        if quoted {
            rest = &rest[1..];
        }
        let mut ended = false;
        while let Some((byte, tail)) = rest.split_first() {
            match byte {
                b'\\' => {
                    element.push(*tail.first()?);
                    rest = &tail[1..];
                    continue;
                }
                b'"' if quoted => {
                    ended = true;
                    rest = tail;
                    break;
                }
                b',' if !quoted => break,
                b'"' | b'{' | b'}' if !quoted => return None,
                other => element.push(*other),
            }
            rest = tail;
        }
        if quoted {
            if !ended {
                return None;
            }
            elements.push(&element);
        } else {
            let element = element.trim_ascii_end();
            match element {
                b"" => return None,
                null if null.eq_ignore_ascii_case(b"null") => elements.spans.push(Span::NULL),
                element => elements.push(element),
            }
        }
        rest = rest.trim_ascii_start();
        match rest.split_first() {
            None => return Some(()),
            Some((b',', tail)) => rest = tail,
            Some(_) => return None,
        }
    }
}

/// Splits a JSON array into elements for a column of `data_type`.
fn split_json(text: &[u8], data_type: &DataType, elements: &mut Elements) -> Option<()> {
    let mut reader = JsonReader::new(text, 0);
    if !reader.eat(b'[') {
        return None;
    }
    if reader.eat(b']') {
        return Some(());
    }
    loop {
        let value = reader.value().ok()?;
        let raw = &text[value.start..value.end];
        match value.kind {
            JsonKind::Null => elements.spans.push(Span::NULL),
            JsonKind::String { .. } if *data_type != DataType::LargeUtf8 => {
                let mut plain = Vec::with_capacity(raw.len());
                if !unescape(&raw[1..raw.len() - 1], &mut plain) {
                    return None;
                }
                elements.push(&plain);
            }
            JsonKind::Array | JsonKind::Object if !matches!(data_type, DataType::LargeUtf8 | DataType::Utf8View) => return None,
            _ => elements.push(raw),
        }
        if !reader.eat(b',') {
            return reader.eat(b']').then_some(());
        }
    }
}
