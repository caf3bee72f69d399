//! COPY TO STDOUT in the formats text, csv and binary.

use arrow::array::Array;
use arrow::record_batch::RecordBatch;
use futures::{FutureExt, StreamExt};
use millpond_planner::pg_text::{TextSettings, write_text};

use super::attend::{Failure, Line};
use super::binary_write::write_binary;
use super::outbox::Outbox;
use super::rows::without_dictionaries;
use crate::answer::{BatchStream, Column, CopyFormat};
use crate::error::SqlError;

/// Signature, no flags, no header extension.
const BINARY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Sends all rows, then the tag.
pub(super) async fn copy_out(
    line: &mut Line,
    columns: &[Column],
    format: &CopyFormat,
    mut stream: BatchStream,
    settings: &TextSettings,
) -> Result<(), Failure> {
    line.outbox.copy_out_response(matches!(format, CopyFormat::Binary), columns.len());
    write_header(&mut line.outbox, columns, format);
    let mut count = 0_u64;
    loop {
        let next = match stream.next().now_or_never() {
            Some(next) => next,
            None => {
                line.flush().await?;
                line.attend(stream.next()).await?
            }
        };
        let Some(batch) = next.transpose()? else { break };
        let batch = without_dictionaries(batch)?;
        for row in 0..batch.num_rows() {
            write_row(&mut line.outbox, &batch, row, columns, format, settings)?;
            if line.outbox.is_full() {
                line.flush().await?;
            }
        }
        count += batch.num_rows() as u64;
    }
    if matches!(format, CopyFormat::Binary) {
        let start = line.outbox.begin_copy_data();
        line.outbox.buffer.extend_from_slice(&(-1_i16).to_be_bytes());
        line.outbox.end_message(start);
    }
    line.take_notices();
    line.outbox.copy_done();
    line.outbox.complete(format!("COPY {count}"));
    Ok(())
}

fn write_header(outbox: &mut Outbox, columns: &[Column], format: &CopyFormat) {
    let names = |outbox: &mut Outbox, write: &dyn Fn(&[u8], &mut Vec<u8>), delimiter: u8| {
        let start = outbox.begin_copy_data();
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                outbox.buffer.push(delimiter);
            }
            write(column.name.as_bytes(), &mut outbox.buffer);
        }
        outbox.buffer.push(b'\n');
        outbox.end_message(start);
    };
    match format {
        CopyFormat::Binary => {
            let start = outbox.begin_copy_data();
            outbox.buffer.extend_from_slice(BINARY_HEADER);
            outbox.end_message(start);
        }
        CopyFormat::Text { delimiter, header: true, .. } => {
            names(outbox, &|name, out| write_escaped(name, *delimiter, out), *delimiter);
        }
        CopyFormat::Csv { delimiter, header: true, quote, escape, .. } => {
            let csv = Csv { delimiter: *delimiter, null: b"", quote: *quote, escape: *escape, single: columns.len() == 1 };
            names(outbox, &|name, out| csv.write(name, false, out), *delimiter);
        }
        CopyFormat::Text { .. } | CopyFormat::Csv { .. } => {}
    }
}

/// One CopyData message.
fn write_row(
    outbox: &mut Outbox,
    batch: &RecordBatch,
    row: usize,
    columns: &[Column],
    format: &CopyFormat,
    settings: &TextSettings,
) -> Result<(), SqlError> {
    let restore = outbox.buffer.len();
    let start = outbox.begin_copy_data();
    if let Err(error) = write_values(batch, row, columns, format, settings, &mut outbox.buffer) {
        outbox.buffer.truncate(restore);
        return Err(error);
    }
    outbox.end_message(start);
    Ok(())
}

fn write_values(
    batch: &RecordBatch,
    row: usize,
    columns: &[Column],
    format: &CopyFormat,
    settings: &TextSettings,
    out: &mut Vec<u8>,
) -> Result<(), SqlError> {
    if batch.num_columns() != columns.len() {
        return Err(SqlError::internal(format!("{} columns were announced, {} came", columns.len(), batch.num_columns())));
    }
    let mut value = Vec::new();
    if matches!(format, CopyFormat::Binary) {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    }
    for (at, array) in batch.columns().iter().enumerate() {
        let is_null = array.logical_nulls().is_some_and(|nulls| nulls.is_null(row));
        value.clear();
        match format {
            CopyFormat::Binary if is_null => out.extend_from_slice(&(-1_i32).to_be_bytes()),
            CopyFormat::Binary => {
                write_binary(array.as_ref(), row, columns[at].type_oid, &mut value)?;
                out.extend_from_slice(&(value.len() as u32).to_be_bytes());
                out.extend_from_slice(&value);
            }
            CopyFormat::Text { delimiter, null, .. } => {
                if at > 0 {
                    out.push(*delimiter);
                }
                if is_null {
                    out.extend_from_slice(null.as_bytes());
                } else {
                    write_text(array.as_ref(), row, settings, &mut value)?;
                    write_escaped(&value, *delimiter, out);
                }
            }
            CopyFormat::Csv { delimiter, null, quote, escape, force_quote, .. } => {
                if at > 0 {
                    out.push(*delimiter);
                }
                let csv = Csv { delimiter: *delimiter, null: null.as_bytes(), quote: *quote, escape: *escape, single: columns.len() == 1 };
                if is_null {
                    out.extend_from_slice(null.as_bytes());
                } else {
                    write_text(array.as_ref(), row, settings, &mut value)?;
                    csv.write(&value, force_quote.get(at).copied().unwrap_or(false), out);
                }
            }
        }
    }
    if !matches!(format, CopyFormat::Binary) {
        out.push(b'\n');
    }
    Ok(())
}

/// The text format's backslash escapes.
fn write_escaped(value: &[u8], delimiter: u8, out: &mut Vec<u8>) {
    for &byte in value {
        let letter = match byte {
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            b'\\' => b'\\',
            byte if byte == delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', letter]);
    }
}

struct Csv<'a> {
    delimiter: u8,
    null: &'a [u8],
    quote: u8,
    escape: u8,
    /// The only column of its row: the end-of-data mark must not look like a value.
    single: bool,
}

impl Csv<'_> {
    fn write(&self, value: &[u8], force: bool, out: &mut Vec<u8>) {
        let special = |byte: &u8| *byte == self.delimiter || *byte == self.quote || matches!(byte, b'\n' | b'\r');
        let needed = force || value == self.null || (self.single && value == b"\\.") || value.iter().any(special);
        if !needed {
            return out.extend_from_slice(value);
        }
        out.push(self.quote);
        for &byte in value {
            if byte == self.quote || byte == self.escape {
                out.push(self.escape);
            }
            out.push(byte);
        }
        out.push(self.quote);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_quotes_only_what_it_must() {
        let csv = Csv { delimiter: b',', null: b"", quote: b'"', escape: b'"', single: false };
        let written = |value: &str| {
            let mut out = Vec::new();
            csv.write(value.as_bytes(), false, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(written("plain text"), "plain text");
        assert_eq!(written(""), "\"\"");
        assert_eq!(written("a,b"), "\"a,b\"");
        assert_eq!(written("say \"hi\""), "\"say \"\"hi\"\"\"");
    }

    #[test]
    fn text_escapes_what_would_end_a_value() {
        let mut out = Vec::new();
        write_escaped(b"a\tb\\c\nd|e", b'|', &mut out);
        assert_eq!(out, b"a\\tb\\\\c\\nd\\|e");
    }
}
