//! The decoders of COPY, whole and cut anywhere.

use arrow::array::{Array, ArrayRef, AsArray};

use super::{
    csv::CsvDecoder,
    fields::{Fields, RowDecoder, shown},
    text::TextDecoder,
};
use crate::error::{Result, SqlError};

/// The rows of data that comes in pieces of that many bytes; what is decoded is taken after each of them.
fn decode(mut decoder: impl RowDecoder, data: &[u8], piece: usize, width: usize) -> Result<Vec<Vec<Option<String>>>, SqlError> {
    let mut fields = Fields::new((0..width).map(|column| format!("c{column}")).collect());
    let mut rows = Vec::new();
    for piece in data.chunks(piece) {
        decoder.push(piece, &mut fields)?;
        rows.extend(take(&mut fields));
    }
    decoder.finish(&mut fields)?;
    rows.extend(take(&mut fields));
    Ok(rows)
}

fn take(fields: &mut Fields) -> Vec<Vec<Option<String>>> {
    let piece = fields.take();
    let value = |column: &ArrayRef, row: usize| {
        let strings = column.as_string::<i32>();
        strings.is_valid(row).then(|| strings.value(row).to_owned())
    };
    (0..piece.rows()).map(|row| piece.columns.iter().map(|column| value(column, row)).collect()).collect()
}

/// Lines and beginnings of all rows.
fn places(mut decoder: impl RowDecoder, data: &[u8], width: usize) -> Vec<(u64, String)> {
    let mut fields = Fields::new(vec![String::new(); width]);
    decoder.push(data, &mut fields).unwrap();
    decoder.finish(&mut fields).unwrap();
    let piece = fields.take();
    let place = |row: usize| (piece.place(row).0, String::from_utf8_lossy(piece.place(row).1).into_owned());
    let places: Vec<(u64, String)> = (0..piece.rows()).map(place).collect();
    let lines = piece.into_lines();
    assert!(places.iter().enumerate().all(|(row, place)| lines.of(row) == place.0));
    places
}

#[test]
fn rows_know_where_they_were() {
    let place = |line: u64, text: &str| (line, text.to_owned());
    assert_eq!(places(text(), b"1\ta\\\n\n2\t\\N\r\n", 2), [place(1, "1\ta\\\n"), place(2, "2\t\\N")]);
    // A row over several lines counts as the last of them.
    assert_eq!(places(csv(), b"1,\"a\nb\"\n2,c", 2), [place(2, "1,\"a\nb\""), place(3, "2,c")]);
    assert_eq!(places(CsvDecoder::new(b',', b'"', b'"', "", true), b"x,y\r\n1,2\r\n", 2), [place(2, "1,2")]);
    assert_eq!(shown("\u{e9}".repeat(60).as_bytes()), Some(format!("{}...", "\u{e9}".repeat(50))));
    assert_eq!(shown(&[b'a', 0xff]), None);
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
