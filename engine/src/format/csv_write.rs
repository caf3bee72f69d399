//! Rows -> CSV, in the form that the scanner reads back as the same rows: a value is quoted if it holds a delimiter, quote or line end, or would
//! be taken for NULL.

use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};

use super::{csv::CsvFormat, text::TextColumn};
use crate::error::Result;

/// Appends the header line.
pub fn write_header(format: &CsvFormat, schema: &SchemaRef, out: &mut String) {
    for (column, field) in schema.fields().iter().enumerate() {
        if column > 0 {
            out.push(char::from(format.delimiter));
        }
        write_value(format, field.name(), out);
    }
    out.push('\n');
}

/// Appends the rows of a batch.
///
/// # Errors
/// 0A000 for a column whose type has no text form.
pub fn write_rows(format: &CsvFormat, batch: &RecordBatch, out: &mut String) -> Result<()> {
    let columns = batch.columns().iter().map(TextColumn::new).collect::<Result<Vec<_>>>()?;
    let mut text = String::new();
    for row in 0..batch.num_rows() {
        for (place, column) in columns.iter().enumerate() {
            if place > 0 {
                out.push(char::from(format.delimiter));
            }
            if column.is_null(row) {
                out.push_str(&format.null);
            } else {
                text.clear();
                column.write(row, &mut text);
                write_value(format, &text, out);
            }
        }
        out.push('\n');
    }
    Ok(())
}

fn write_value(format: &CsvFormat, text: &str, out: &mut String) {
    let special = |byte: u8| byte == format.delimiter || byte == format.quote || byte == b'\n' || byte == b'\r';
    if text != format.null && !text.bytes().any(special) {
        out.push_str(text);
        return;
    }
    let quote = char::from(format.quote);
    out.push(quote);
    for character in text.chars() {
        if character == quote {
            out.push(quote);
        }
        out.push(character);
    }
    out.push(quote);
}
