//! The decoders of COPY, whole and cut anywhere.

use arrow::array::AsArray;

use super::{
    csv::CsvDecoder,
    fields::{Fields, RowDecoder},
    text::TextDecoder,
};
use crate::error::{Result, SqlError};

fn decode(mut decoder: impl RowDecoder, data: &[u8], piece: usize, width: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
    let mut fields = Fields::new((0..width).map(|column| format!("c{column}")).collect());
    for piece in data.chunks(piece) {
        decoder.push(piece, &mut fields)?;
    }
    decoder.finish(&mut fields)?;
    let rows = fields.rows();
    let columns = fields.take();
    let value = |column: usize, row: usize| {
        let strings = columns[column].as_string::<i32>();
        (!arrow::array::Array::is_null(strings, row)).then(|| strings.value(row).to_owned())
    };
    Ok((0..rows).map(|row| (0..width).map(|column| value(column, row)).collect()).collect())
}

fn row(values: &[Option<&str>]) -> Vec<Option<String>> {
    values.iter().map(|value| value.map(str::to_owned)).collect()
}

fn text() -> TextDecoder {
    TextDecoder::new(b'\t', "\\N", false)
}

fn csv() -> CsvDecoder {
    CsvDecoder::new(b',', b'"', b'"', "", false)
}

#[test]
fn text_rows_wherever_they_are_cut() {
    let data = b"1\ta\\tb\\\\\n2\t\\N\r\n3\t\r\n4\tx\\\ny\\x41\\101\n\\.\ngarbage";
    let expected =
        vec![row(&[Some("1"), Some("a\tb\\")]), row(&[Some("2"), None]), row(&[Some("3"), Some("")]), row(&[Some("4"), Some("x\nyAA")])];
    for piece in 1..=data.len() {
        assert_eq!(decode(text(), data, piece, 2).unwrap(), expected, "pieces of {piece}");
    }
}

#[test]
fn a_last_line_needs_no_end_and_widths_must_fit() {
    assert_eq!(decode(text(), b"1\t2", 100, 2).unwrap(), [row(&[Some("1"), Some("2")])]);
    let missing = decode(text(), b"1\n", 100, 2).unwrap_err();
    assert_eq!((missing.sqlstate.as_str(), missing.message.as_str()), ("22P04", "missing data for column \"c1\""));
    assert_eq!(decode(text(), b"1\t2\t3\n", 100, 2).unwrap_err().message, "extra data after last expected column");
    assert_eq!(decode(text(), b"\xff\t2\n", 100, 2).unwrap_err().sqlstate, "22021");
    assert_eq!(decode(text(), b"a\\", 100, 1).unwrap(), [row(&[Some("a\\")])]);
}

#[test]
fn csv_rows_wherever_they_are_cut() {
    let data = b"1,\"a,\"\"b\"\"\nc\"\r\n2,\n3,\"\"\n,x\"y\"z\n";
    let expected =
        vec![row(&[Some("1"), Some("a,\"b\"\nc")]), row(&[Some("2"), None]), row(&[Some("3"), Some("")]), row(&[None, Some("xyz")])];
    for piece in 1..=data.len() {
        assert_eq!(decode(csv(), data, piece, 2).unwrap(), expected, "pieces of {piece}");
    }
}

#[test]
fn csv_header_escape_and_open_quotes() {
    let header = CsvDecoder::new(b';', b'\'', b'\\', "null", true);
    let rows = decode(header, b"a;b;more\n'it\\'s';null\n", 3, 2).unwrap();
    assert_eq!(rows, [row(&[Some("it's"), None])]);
    assert_eq!(decode(csv(), b"1,\"open\n", 100, 2).unwrap_err().message, "unterminated CSV quoted field");
    assert_eq!(decode(csv(), b"1,2\n\\.\n3,4\n", 100, 2).unwrap().len(), 1);
}
