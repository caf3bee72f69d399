//! Scanner of JSON lines: one object per line. A column takes the value of the member with its name (exact, else without regard to case); a
//! member that is absent or `null` is NULL, members without a column are skipped, and of several with one name the last counts.
//!
//! A `jsonb` column keeps any value as it is. An array column takes an array. A text column also takes numbers, booleans, objects and
//! arrays, as their JSON text. Other columns take their Postgres text in a string, or a number or boolean.

use arrow::datatypes::{DataType, SchemaRef};
use memchr::memchr;

use super::{
    block::{MAX_ROW_BYTES, RowScanner, ScannedRows, Span},
    json_scan::{JsonKind, JsonReader, JsonValue, unescape},
};

/// What a column takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    /// Any value, as JSON text.
    Json,
    /// An array, as JSON text.
    List,
    /// Characters; nested values as JSON text.
    Text,
    /// A string, number or boolean.
    Scalar,
}

impl Target {
    fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::LargeUtf8 => Target::Json,
            DataType::List(_) => Target::List,
            DataType::Utf8 | DataType::Utf8View => Target::Text,
            _ => Target::Scalar,
        }
    }
}

/// Scans the rows of one file.
#[derive(Debug)]
pub struct JsonScanner {
    columns: Vec<(String, Target)>,
}

impl JsonScanner {
    /// A scanner that keeps the members named by the columns of `schema`.
    pub fn new(schema: &SchemaRef) -> Self {
        Self { columns: schema.fields().iter().map(|field| (field.name().clone(), Target::of(field.data_type()))).collect() }
    }

    /// The column of a member name. Lines mostly have the same members in the same order: `hint` is tried first.
    fn column(&self, name: &[u8], hint: usize) -> Option<usize> {
        if self.columns.get(hint).is_some_and(|(column, _)| column.as_bytes() == name) {
            return Some(hint);
        }
        let exact = self.columns.iter().position(|(column, _)| column.as_bytes() == name);
        exact.or_else(|| self.columns.iter().position(|(column, _)| column.as_bytes().eq_ignore_ascii_case(name)))
    }

    fn object(&self, text: &[u8], start: usize, out: &mut ScannedRows) -> Result<(), String> {
        let base = out.spans.len();
        out.spans.resize(base + self.columns.len(), Span::NULL);
        let mut reader = JsonReader::new(text, start);
        let invalid = |reader: &JsonReader<'_>| format!("invalid input syntax for type json at byte {}", reader.position() - start + 1);
        if !reader.eat(b'{') {
            return Err("expected a JSON object".into());
        }
        let mut hint = 0;
        let mut first = true;
        loop {
            if first && reader.eat(b'}') {
                break;
            }
            first = false;
            let name = reader.string().map_err(|_| invalid(&reader))?;
            reader.expect(b':').map_err(|_| invalid(&reader))?;
            let value = reader.value().map_err(|_| invalid(&reader))?;
            if let Some(column) = self.named(text, name, hint) {
                out.spans[base + column] = take(text, value, &self.columns[column], &mut out.arena)?;
                hint = column + 1;
            }
            if !reader.eat(b',') {
                reader.expect(b'}').map_err(|_| invalid(&reader))?;
                break;
            }
        }
        reader.finish().map_err(|_| invalid(&reader))
    }

    fn named(&self, text: &[u8], name: JsonValue, hint: usize) -> Option<usize> {
        let inside = &text[name.start + 1..name.end - 1];
        if name.kind == (JsonKind::String { escaped: true }) {
            let mut plain = Vec::new();
            return if unescape(inside, &mut plain) { self.column(&plain, hint) } else { None };
        }
        self.column(inside, hint)
    }
}

/// The span of a value, as its column wants it.
fn take(text: &[u8], value: JsonValue, column: &(String, Target), arena: &mut Vec<u8>) -> Result<Span, String> {
    let raw = Span::of_text(value.start, value.end);
    let (name, target) = column;
    match (value.kind, target) {
        (JsonKind::Null, _) => Ok(Span::NULL),
        (_, Target::Json) | (JsonKind::Array, Target::List) => Ok(raw),
        (_, Target::List) => Err(format!("expected a JSON array for column \"{name}\"")),
        (JsonKind::String { escaped: false }, _) => Ok(Span::of_text(value.start + 1, value.end - 1)),
        (JsonKind::String { escaped: true }, _) => {
            let start = arena.len();
            if unescape(&text[value.start + 1..value.end - 1], arena) {
                Ok(Span::of_arena(start, arena.len()))
            } else {
                Err(format!("unsupported Unicode escape sequence in column \"{name}\""))
            }
        }
        (JsonKind::Number | JsonKind::Boolean, _) | (JsonKind::Array | JsonKind::Object, Target::Text) => Ok(raw),
        (JsonKind::Array | JsonKind::Object, Target::Scalar) => Err(format!("expected a single JSON value for column \"{name}\"")),
    }
}

impl RowScanner for JsonScanner {
    fn scan(&mut self, text: &[u8], from: usize, at_end: bool, max_rows: usize, out: &mut ScannedRows) -> usize {
        let mut at = from;
        while at < text.len() && out.seen() < max_rows {
            let (end, next) = match memchr(b'\n', &text[at..]) {
                Some(length) => (at + length, at + length + 1),
                None if at_end => (text.len(), text.len()),
                None => break,
            };
            if next - at > MAX_ROW_BYTES {
                break;
            }
            if !text[at..end].trim_ascii().is_empty() {
                match self.object(&text[..end], at, out) {
                    Ok(()) => out.end_row(at, next),
                    Err(reason) => out.break_row(at, next, reason),
                }
            }
            at = next;
        }
        at
    }

    fn width(&self) -> usize {
        self.columns.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{Field, Schema};

    use super::*;

    #[test]
    fn members_become_spans() {
        let list = DataType::List(Arc::new(Field::new("item", DataType::Int64, true)));
        let columns = [("id", DataType::Int64), ("name", DataType::Utf8View), ("doc", DataType::LargeUtf8), ("tags", list)];
        let schema = Arc::new(Schema::new(columns.map(|(name, data_type)| Field::new(name, data_type, true)).to_vec()));
        let text = concat!(
            "{\"id\": 1, \"name\": \"a\\nb\", \"other\": [{}], \"doc\": \"x\", \"tags\": [1, 2]}\n",
            "\r\n",
            "{\"DOC\": {\"a\": 1}, \"ID\": \"2\", \"id\": 3, \"name\": {\"n\": 1}}\r\n",
            "{}\n[1]\n{\"id\": [1]}\n{\"id\": 1,}\n{\"id\": 1} x\n{\"tags\": 5}\n{\"name\": \"\\ud800\"}\n{\"id\": 9}",
        );
        let mut out = ScannedRows::new(4);
        let end = JsonScanner::new(&schema).scan(text.as_bytes(), 0, true, 1000, &mut out);
        assert_eq!(end, text.len());
        let show = |span: &Span| {
            let bytes = if span.in_arena() { &out.arena[..] } else { text.as_bytes() };
            if span.is_null() {
                "~"
            } else {
                std::str::from_utf8(&bytes[span.start() as usize..(span.start() + span.len()) as usize]).unwrap()
            }
        };
        let rows: Vec<String> = out.spans.chunks(4).map(|row| row.iter().map(show).collect::<Vec<_>>().join("|")).collect();
        assert_eq!(rows, ["1|a\nb|\"x\"|[1, 2]", "3|{\"n\": 1}|{\"a\": 1}|~", "~|~|~|~", "9|~|~|~"]);
        let reasons: Vec<&str> = out.broken.iter().map(|(_, reason)| reason.as_str()).collect();
        assert_eq!(
            reasons,
            [
                "expected a JSON object",
                "expected a single JSON value for column \"id\"",
                "invalid input syntax for type json at byte 10",
                "invalid input syntax for type json at byte 11",
                "expected a JSON array for column \"tags\"",
                "unsupported Unicode escape sequence in column \"name\"",
            ]
        );
    }
}
