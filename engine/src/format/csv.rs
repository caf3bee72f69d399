//! Scanner of CSV: RFC 4180 with a delimiter of choice. A value in quotes may hold delimiters, line ends and doubled quotes; a quote
//! inside a value that does not begin with one is an ordinary character. Lines end in LF or CRLF. An unquoted value equal to the null
//! text (empty unless set) is NULL; a quoted one never is, as in Postgres' COPY. Empty lines are no rows, unless there is one column.
//!
//! Each row must have as many values as the relation has columns, whichever of them are wanted.

use memchr::{memchr, memchr2};

use super::block::{MAX_ROW_BYTES, RowScanner, ScannedRows, Span};

/// How a CSV file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsvFormat {
    /// Between values: one ASCII character.
    pub delimiter: u8,
    /// Round values that hold special characters.
    pub quote: u8,
    /// The unquoted text of NULL.
    pub null: String,
    /// The first line of a file names its columns.
    pub header: bool,
}

impl Default for CsvFormat {
    fn default() -> Self {
        Self { delimiter: b',', quote: b'"', null: String::new(), header: false }
    }
}

/// Marks a file column that is not wanted.
const UNWANTED: usize = usize::MAX;

/// Scans the rows of one file.
#[derive(Debug)]
pub struct CsvScanner {
    format: CsvFormat,
    /// Per column of the file: the position of its value among the wanted ones.
    slots: Vec<usize>,
    width: usize,
}

impl CsvScanner {
    /// A scanner of files with `columns` columns that keeps those of `wanted` (column numbers, in output order, each at most once).
    pub fn new(format: CsvFormat, columns: usize, wanted: &[usize]) -> Self {
        let mut slots = vec![UNWANTED; columns];
        for (slot, column) in wanted.iter().enumerate() {
            slots[*column] = slot;
        }
        Self { format, slots, width: wanted.len() }
    }

    /// The values of the first row of a text, which names the columns; `None` while its line end has not been seen.
    pub fn header(format: &CsvFormat, text: &[u8], at_end: bool) -> Option<(Vec<String>, usize)> {
        let mut names = Vec::new();
        let mut arena = Vec::new();
        let mut at = 0;
        loop {
            let value = find_value(format, text, at, at_end, &mut arena)?;
            let (bytes, start) = if value.span.in_arena() { (&arena[..], value.span.start()) } else { (text, value.span.start()) };
            let name = if value.span.is_null() { &b""[..] } else { &bytes[start as usize..(start + value.span.len()) as usize] };
            names.push(String::from_utf8_lossy(name).trim_start_matches('\u{feff}').trim().to_owned());
            at = value.next;
            if value.last {
                return Some((names, at));
            }
        }
    }

    /// Scans the row at `start`, and returns the byte behind it, or `None` if it is not whole or too long.
    fn row(&mut self, text: &[u8], start: usize, at_end: bool, out: &mut ScannedRows) -> Option<usize> {
        let base = out.spans.len();
        out.spans.resize(base + self.width, Span::NULL);
        let mut column = 0;
        let mut at = start;
        loop {
            let Some(value) = find_value(&self.format, text, at, at_end, &mut out.arena) else {
                out.undo_row();
                return None;
            };
            match self.slots.get(column) {
                Some(&UNWANTED) | None => {}
                Some(&slot) => out.spans[base + slot] = value.span,
            }
            column += 1;
            at = value.next;
            if value.last {
                break;
            }
        }
        if at - start > MAX_ROW_BYTES {
            out.undo_row();
            return None;
        }
        if column == self.slots.len() {
            out.end_row(start, at);
        } else {
            let wanted = self.slots.len();
            let reason = if column < wanted {
                format!("missing data: {column} of {wanted} columns")
            } else {
                format!("extra data after last expected column: {column} instead of {wanted} columns")
            };
            out.break_row(start, at, reason);
        }
        Some(at)
    }
}

impl RowScanner for CsvScanner {
    fn scan(&mut self, text: &[u8], from: usize, at_end: bool, max_rows: usize, out: &mut ScannedRows) -> usize {
        let mut at = from;
        while at < text.len() && out.seen() < max_rows {
            if self.slots.len() > 1 {
                let blank = match text[at] {
                    b'\n' => 1,
                    b'\r' if text.get(at + 1) == Some(&b'\n') => 2,
                    _ => 0,
                };
                if blank > 0 {
                    at += blank;
                    continue;
                }
            }
            match self.row(text, at, at_end, out) {
                Some(next) => at = next,
                None => break,
            }
        }
        at
    }

    fn width(&self) -> usize {
        self.width
    }
}

/// One value of a row.
struct Value {
    span: Span,
    /// Behind its delimiter or line end.
    next: usize,
    /// It ends its row.
    last: bool,
}

/// The value that starts at byte `at`, or `None` if the text ends before it does (and more text follows).
#[inline]
fn find_value(format: &CsvFormat, text: &[u8], at: usize, at_end: bool, arena: &mut Vec<u8>) -> Option<Value> {
    if text.get(at) == Some(&format.quote) {
        return find_quoted(format, text, at, at_end, arena);
    }
    let (end, next, last) = value_end(format, text, at, at_end)?;
    let value = &text[at..end];
    let is_null = if format.null.is_empty() { value.is_empty() } else { value == format.null.as_bytes() };
    Some(Value { span: if is_null { Span::NULL } else { Span::of_text(at, end) }, next, last })
}

/// Where an unquoted run of characters ends, where the next value begins, and whether the row ends between them.
#[inline]
fn value_end(format: &CsvFormat, text: &[u8], at: usize, at_end: bool) -> Option<(usize, usize, bool)> {
    match memchr2(format.delimiter, b'\n', &text[at..]) {
        Some(length) if text[at + length] == b'\n' => {
            let end = at + length;
            let without_cr = if length > 0 && text[end - 1] == b'\r' { end - 1 } else { end };
            Some((without_cr, end + 1, true))
        }
        Some(length) => Some((at + length, at + length + 1, false)),
        None if at_end => Some((text.len(), text.len(), true)),
        None => None,
    }
}

#[cold]
fn find_quoted(format: &CsvFormat, text: &[u8], at: usize, at_end: bool, arena: &mut Vec<u8>) -> Option<Value> {
    let start = at + 1;
    let mut from = start;
    let mut doubled = false;
    let close = loop {
        let quote = from + memchr(format.quote, text.get(from..)?)?;
        match text.get(quote + 1) {
            Some(next) if *next == format.quote => {
                doubled = true;
                from = quote + 2;
            }
            // A quote as the last byte so far may be the first half of a doubled one.
            None if !at_end => return None,
            _ => break quote,
        }
    };
    let (end, next, last) = value_end(format, text, close + 1, at_end)?;
    if !doubled && end == close + 1 {
        return Some(Value { span: Span::of_text(start, close), next, last });
    }
    let arena_start = arena.len();
    let mut escaped = false;
    for byte in &text[start..close] {
        escaped = *byte == format.quote && !escaped;
        if !escaped {
            arena.push(*byte);
        }
    }
    arena.extend_from_slice(&text[close + 1..end]);
    Some(Value { span: Span::of_arena(arena_start, arena.len()), next, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as text: NULL is `~`, values are in brackets, broken rows after `!`.
    fn scan(format: CsvFormat, columns: usize, wanted: &[usize], text: &str, at_end: bool) -> (Vec<String>, usize) {
        let mut out = ScannedRows::new(wanted.len());
        let end = CsvScanner::new(format, columns, wanted).scan(text.as_bytes(), 0, at_end, 1000, &mut out);
        let show = |span: Span| {
            if span.is_null() {
                return "~".to_owned();
            }
            let bytes = if span.in_arena() { &out.arena[..] } else { text.as_bytes() };
            format!("[{}]", std::str::from_utf8(&bytes[span.start() as usize..(span.start() + span.len()) as usize]).unwrap())
        };
        let mut rows: Vec<(u32, String)> = Vec::new();
        for (row, range) in out.rows.iter().enumerate() {
            let spans = &out.spans[row * out.width..(row + 1) * out.width];
            rows.push((range.start, spans.iter().map(|span| show(*span)).collect::<Vec<_>>().join("")));
        }
        rows.extend(out.broken.iter().map(|(range, reason)| (range.start, format!("!{reason}"))));
        rows.sort();
        (rows.into_iter().map(|(_, row)| row).collect(), end)
    }

    #[test]
    fn plain_values_quotes_and_line_ends() {
        let text = "1,ab,\r\n2,\"x,\"\"y\"\"\nz\",\"\"\n\n3,a\"b,\"c\"d\n4,,last";
        let (rows, end) = scan(CsvFormat::default(), 3, &[0, 1, 2], text, true);
        assert_eq!(rows, ["[1][ab]~", "[2][x,\"y\"\nz][]", "[3][a\"b][cd]", "[4]~[last]"]);
        assert_eq!(end, text.len());
    }

    #[test]
    fn only_wanted_columns_but_every_row_is_counted() {
        let (rows, _) = scan(CsvFormat::default(), 3, &[2, 0], "1,a,x\n2,b\n3,c,y,z\n4,d,w\n", true);
        let broken = ["!missing data: 2 of 3 columns", "!extra data after last expected column: 4 instead of 3 columns"];
        assert_eq!(rows, ["[x][1]", broken[0], broken[1], "[w][4]"]);
    }

    #[test]
    fn other_delimiters_quotes_and_null_texts() {
        let format = CsvFormat { delimiter: b'\t', quote: b'\'', null: "\\N".into(), header: false };
        let (rows, _) = scan(format, 2, &[0, 1], "\\N\t''\n'\\N'\t\n", true);
        assert_eq!(rows, ["~[]", "[\\N][]"]);
        let (rows, _) = scan(CsvFormat::default(), 1, &[0], "a\n\nb\n", true);
        assert_eq!(rows, ["[a]", "~", "[b]"]);
    }

    #[test]
    fn an_unfinished_row_is_left_for_later_at_every_cut() {
        let text = "1,\"a\"\"b\nc\"\r\n22,x\r\n";
        let (all, _) = scan(CsvFormat::default(), 2, &[0, 1], text, true);
        for cut in 0..text.len() {
            let (mut rows, end) = scan(CsvFormat::default(), 2, &[0, 1], &text[..cut], false);
            assert!(end <= cut);
            let (rest, _) = scan(CsvFormat::default(), 2, &[0, 1], &text[end..], true);
            rows.extend(rest);
            assert_eq!(rows, all, "cut at {cut}");
        }
    }

    #[test]
    fn header_names() {
        let header = CsvScanner::header(&CsvFormat::default(), "\u{feff}a,\"b c\", d \r\n1,2,3".as_bytes(), false);
        assert_eq!(header, Some((vec!["a".to_owned(), "b c".to_owned(), "d".to_owned()], 16)));
        assert_eq!(CsvScanner::header(&CsvFormat::default(), b"a,b", false), None);
    }
}
