//! The text form of chunks and rows, for tests and for the rows shown in side outputs.
//!
//! One line per row: `+` insert, `-` delete, `U-` update-before, `U+` update-after, then the values separated by blanks. A value with a
//! blank, a quote or nothing in it is written in double quotes with `\"` and `\\`; NULL is `NULL`; bytes and uuids are hexadecimal.

use std::{fmt, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, BinaryArray, FixedSizeBinaryBuilder, ListArray, StringArray, new_empty_array},
    buffer::{NullBuffer, OffsetBuffer},
    compute::{CastOptions, cast_with_options, concat},
    datatypes::{DataType, SchemaRef},
    record_batch::{RecordBatch, RecordBatchOptions},
    util::display::{ArrayFormatter, FormatOptions},
};

use super::{Chunk, Op};
use crate::error::{EngineError, Result};

/// Longest text of one row in a side output.
const ROW_TEXT_BYTES: usize = 1024;

impl Chunk {
    /// Parses the text form. Values are read as Arrow's cast from text reads them.
    pub fn parse(schema: &SchemaRef, text: &str) -> Result<Self> {
        let mut ops = Vec::new();
        let mut values: Vec<Vec<Option<String>>> = vec![Vec::new(); schema.fields().len()];
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words = split_words(line)?;
            let (op, row) = words.split_first().ok_or_else(|| malformed(line))?;
            ops.push(op.as_deref().and_then(parse_op).ok_or_else(|| malformed(line))?);
            if row.len() != values.len() {
                return Err(malformed(line));
            }
            values.iter_mut().zip(row).for_each(|(column, value)| column.push(value.clone()));
        }
        let columns = values
            .into_iter()
            .zip(schema.fields())
            .map(|(column, field)| parse_column(column, field.data_type()))
            .collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(ops.len()));
        Ok(Chunk::new(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?, ops))
    }

    /// The lines of the text form, without line ends.
    pub fn lines(&self) -> Vec<String> {
        (0..self.num_rows()).map(|row| join_words(op_text(self.op(row)), &row_words(self.batch(), row))).collect()
    }
}

impl fmt::Display for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("\n"))
    }
}

/// The values of one row, as in a line of the text form, cut to 1,024 bytes.
pub fn row_text(batch: &RecordBatch, row: usize) -> String {
    if row >= batch.num_rows() {
        return String::new();
    }
    let mut text = row_words(batch, row).join(" ");
    if text.len() > ROW_TEXT_BYTES {
        let end = (0..=ROW_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

fn join_words(op: &str, words: &[String]) -> String {
    if words.is_empty() { op.to_owned() } else { format!("{op} {}", words.join(" ")) }
}

fn row_words(batch: &RecordBatch, row: usize) -> Vec<String> {
    batch.columns().iter().map(|column| value_text(column, row)).collect()
}

/// One value of the text form.
pub(crate) fn value_text(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "NULL".to_owned();
    }
    let bytes = match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().value(row)),
        DataType::BinaryView => Some(column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => Some(column.as_fixed_size_binary().value(row)),
        _ => None,
    };
    if let Some(bytes) = bytes {
        return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    if let DataType::List(_) = column.data_type() {
        let items = column.as_list::<i32>().value(row);
        let words: Vec<_> = (0..items.len()).map(|item| value_text(&items, item)).collect();
        return format!("{{{}}}", words.join(","));
    }
    let options = FormatOptions::default();
    let text = match ArrayFormatter::try_new(column, &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(error) => format!("<{error}>"),
    };
    let bare = !text.is_empty() && text != "NULL" && !text.contains([' ', '"', '\\', '\n', ',', '{', '}']);
    if bare { text } else { format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")) }
}

fn op_text(op: Op) -> &'static str {
    match op {
        Op::Insert => "+",
        Op::Delete => "-",
        Op::UpdateBefore => "U-",
        Op::UpdateAfter => "U+",
    }
}

fn parse_op(text: &str) -> Option<Op> {
    [Op::Insert, Op::Delete, Op::UpdateBefore, Op::UpdateAfter].into_iter().find(|op| op_text(*op) == text)
}

fn malformed(line: &str) -> EngineError {
    EngineError::Internal(format!("malformed chunk line: {line}"))
}

/// Words of a line; an unquoted `NULL` is `None`.
fn split_words(line: &str) -> Result<Vec<Option<String>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (word, after) = split_quoted(quoted).ok_or_else(|| malformed(line))?;
            words.push(Some(word));
            rest = after.trim_start();
        } else {
            let end = rest.find(' ').unwrap_or(rest.len());
            words.push(Some(rest[..end].to_owned()).filter(|word| word != "NULL"));
            rest = rest[end..].trim_start();
        }
    }
    Ok(words)
}

/// The text up to the closing quote, and what follows it.
fn split_quoted(text: &str) -> Option<(String, &str)> {
    let mut word = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((word, &text[at + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => word.push('\n'),
                other => word.push(other),
            },
            other => word.push(other),
        }
    }
    None
}

fn parse_column(values: Vec<Option<String>>, data_type: &DataType) -> Result<ArrayRef> {
    match data_type {
        DataType::Binary => {
            let bytes = values.iter().map(|value| value.as_deref().map(parse_hex).transpose()).collect::<Result<Vec<_>>>()?;
            Ok(Arc::new(bytes.iter().map(Option::as_deref).collect::<BinaryArray>()))
        }
        DataType::FixedSizeBinary(width) => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(values.len(), *width);
            for value in &values {
                match value {
                    Some(text) => builder.append_value(parse_hex(text)?)?,
                    None => builder.append_null(),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
        DataType::List(field) => {
            let lists = values.iter().map(|value| value.as_deref().map(split_list));
            let lists: Vec<Option<Vec<Option<String>>>> = lists.collect();
            let items = lists.iter().flatten().map(|items| parse_column(items.clone(), field.data_type())).collect::<Result<Vec<_>>>()?;
            let references: Vec<&dyn Array> = items.iter().map(AsRef::as_ref).collect();
            let items = if references.is_empty() { new_empty_array(field.data_type()) } else { concat(&references)? };
            let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
            let nulls = NullBuffer::from_iter(lists.iter().map(Option::is_some));
            Ok(Arc::new(ListArray::try_new(Arc::clone(field), OffsetBuffer::from_lengths(lengths), items, Some(nulls))?))
        }
        _ => {
            let text: ArrayRef = Arc::new(StringArray::from(values));
            let options = CastOptions { safe: false, ..CastOptions::default() };
            Ok(cast_with_options(&text, data_type, &options)?)
        }
    }
}

fn split_list(text: &str) -> Vec<Option<String>> {
    let inner = text.trim_start_matches('{').trim_end_matches('}');
    let items = inner.split(',').filter(|item| !item.is_empty());
    items.map(|item| Some(item.trim_matches('"').to_owned()).filter(|item| item != "NULL")).collect()
}

fn parse_hex(text: &str) -> Result<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    digits.collect::<Option<_>>().ok_or_else(|| malformed(text))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{Field, Schema, TimeUnit};

    use super::*;

    #[test]
    fn text_survives_a_round_trip() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Utf8View, true),
            Field::new("c", DataType::Timestamp(TimeUnit::Microsecond, None), true),
            Field::new("d", DataType::Decimal128(10, 2), true),
            Field::new("e", DataType::FixedSizeBinary(2), true),
            Field::new("f", DataType::List(Arc::new(Field::new("item", DataType::Int32, true))), true),
        ]));
        let text = "+ 1 x 2020-01-01T00:00:00 1.50 00ff {1,NULL,3}\n\
                    - NULL \"two words\" NULL NULL NULL NULL\n\
                    U- 2 \"\" 1960-01-01T00:00:00.000001 -0.25 0102 {}\n\
                    U+ 2 \"NULL\" NULL NULL NULL NULL";
        assert_eq!(Chunk::parse(&schema, text).unwrap().to_string(), text);
    }

    #[test]
    fn malformed_lines_are_errors() {
        let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        for text in ["* 1", "+ 1 2", "+", "+ x", "+ \"1"] {
            assert!(Chunk::parse(&schema, text).is_err(), "{text}");
        }
    }
}
