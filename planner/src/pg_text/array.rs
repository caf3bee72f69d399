//! Array literals: `{1,NULL,"a b",{...}}`, their quoting, and composite values `(1,"a b",)`.

use super::integer::is_space;
use super::settings::TextError;

/// Arrays have at most this many dimensions.
const MAX_DIMENSIONS: usize = 6;

/// The pieces of an array literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArrayLiteral {
    /// `{...}`
    Array(Vec<ArrayLiteral>),
    /// An element's text without quotes and escapes.
    Element(String),
    /// Unquoted NULL.
    Null,
}

/// Takes an array literal apart without looking at its elements. Bounds in front (`[1:2]=`) are checked for their form and dropped.
pub fn split_array_literal(text: &str) -> Result<ArrayLiteral, TextError> {
    let mut parser = Parser { text, bytes: text.as_bytes(), at: 0 };
    parser.skip_space();
    let declared = parser.bounds()?;
    if parser.peek() != Some(b'{') {
        return Err(parser.malformed("Array value must start with \"{\" or dimension information."));
    }
    let array = parser.array(1)?;
    parser.skip_space();
    if parser.at < parser.bytes.len() {
        return Err(parser.malformed("Junk after closing right brace."));
    }
    let lengths = rectangular(&array);
    let lengths = lengths.ok_or_else(|| parser.malformed("Multidimensional arrays must have sub-arrays with matching dimensions."))?;
    if declared.is_some_and(|declared| declared != lengths) {
        return Err(parser.malformed("Specified array dimensions do not match array contents."));
    }
    Ok(array)
}

/// The lengths of the dimensions; None when sub-arrays differ.
fn rectangular(literal: &ArrayLiteral) -> Option<Vec<usize>> {
    let ArrayLiteral::Array(items) = literal else { return Some(Vec::new()) };
    let mut lengths = vec![items.len()];
    let mut inner: Option<Vec<usize>> = None;
    for item in items {
        let dimensions = rectangular(item)?;
        if inner.as_ref().is_some_and(|first| *first != dimensions) {
            return None;
        }
        inner = Some(dimensions);
    }
    lengths.extend(inner.unwrap_or_default());
    Some(lengths)
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
    }

    fn malformed(&self, detail: &str) -> TextError {
        TextError::new("22P02", format!("malformed array literal: \"{}\"", self.text)).with_detail(detail)
    }

    /// `[1:2][0:3]=`: the lengths of the dimensions, if they are given.
    fn bounds(&mut self) -> Result<Option<Vec<usize>>, TextError> {
        if self.peek() != Some(b'[') {
            return Ok(None);
        }
        let end = self.text[self.at..].find('=').ok_or_else(|| self.malformed("Missing \"=\" after array dimensions."))?;
        let bounds = self.text[self.at..self.at + end].trim().trim_end_matches(']');
        let length = |bound: &str| {
            let numbers = bound.trim().strip_prefix('[')?;
            let (lower, upper) = numbers.split_once(':').unwrap_or(("1", numbers));
            let (lower, upper) = (lower.trim().parse::<i32>().ok()?, upper.trim().parse::<i32>().ok()?);
            usize::try_from(i64::from(upper) - i64::from(lower) + 1).ok()
        };
        let lengths: Option<Vec<usize>> = bounds.split(']').map(length).collect();
        let lengths = lengths.ok_or_else(|| self.malformed("\"[\" must introduce explicitly-specified array dimensions."))?;
        self.at += end + 1;
        self.skip_space();
        Ok(Some(lengths))
    }

    fn array(&mut self, depth: usize) -> Result<ArrayLiteral, TextError> {
        if depth > MAX_DIMENSIONS {
            let message = format!("number of array dimensions ({depth}) exceeds the maximum allowed ({MAX_DIMENSIONS})");
            return Err(TextError::new("54000", message));
        }
        self.at += 1;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(ArrayLiteral::Array(items));
        }
        loop {
            self.skip_space();
            let item = match self.peek() {
                Some(b'{') => self.array(depth + 1)?,
                Some(b'"') => self.quoted()?,
                Some(b',' | b'}') => {
                    let found = self.bytes[self.at] as char;
                    return Err(self.malformed(&format!("Unexpected \"{found}\" character.")));
                }
                Some(_) => self.bare()?,
                None => return Err(self.malformed("Unexpected end of input.")),
            };
            items.push(item);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(ArrayLiteral::Array(items));
                }
                Some(b'{') => return Err(self.malformed("Unexpected \"{\" character.")),
                Some(_) => return Err(self.malformed("Unexpected array element.")),
                None => return Err(self.malformed("Unexpected end of input.")),
            }
        }
    }

    fn quoted(&mut self) -> Result<ArrayLiteral, TextError> {
        self.at += 1;
        let mut value = Vec::new();
        loop {
            match self.peek() {
                None => return Err(self.malformed("Unexpected end of input.")),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    value.push(self.peek().ok_or_else(|| self.malformed("Unexpected end of input."))?);
                }
                Some(byte) => value.push(byte),
            }
            self.at += 1;
        }
        self.at += 1;
        Ok(ArrayLiteral::Element(self.whole(value)))
    }

    fn bare(&mut self) -> Result<ArrayLiteral, TextError> {
        let mut value = Vec::new();
        let mut escaped = false;
        // Bytes up to here stay though they be spaces, because an escape made them part of the element.
        let mut kept = 0;
        loop {
            match self.peek() {
                None => return Err(self.malformed("Unexpected end of input.")),
                Some(b',' | b'}') => break,
                Some(b'"') => return Err(self.malformed("Unexpected array element.")),
                Some(b'{') => return Err(self.malformed("Unexpected \"{\" character.")),
                Some(b'\\') => {
                    self.at += 1;
                    value.push(self.peek().ok_or_else(|| self.malformed("Unexpected end of input."))?);
                    escaped = true;
                    kept = value.len();
                }
                Some(byte) => value.push(byte),
            }
            self.at += 1;
        }
        while value.len() > kept && value.last().is_some_and(|b| is_space(*b)) {
            value.pop();
        }
        if !escaped && value.eq_ignore_ascii_case(b"null") {
            return Ok(ArrayLiteral::Null);
        }
        Ok(ArrayLiteral::Element(self.whole(value)))
    }

    /// Pieces of a valid text, cut at ASCII characters; an escape takes one byte at a time, and the rest of its character follows.
    fn whole(&self, bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned())
    }
}

/// Quotes an element that was written from `start` on, if it needs it.
pub(super) fn quote_array_element(start: usize, out: &mut Vec<u8>) {
    let element = &out[start..];
    let special = |b: &u8| matches!(b, b'"' | b'\\' | b'{' | b'}' | b',') || is_space(*b);
    if element.is_empty() || element.eq_ignore_ascii_case(b"null") || element.iter().any(special) {
        quote(start, b"\\", out);
    }
}

/// Quotes a field of a composite value that was written from `start` on, if it needs it.
pub(super) fn quote_record_field(start: usize, out: &mut Vec<u8>) {
    let field = &out[start..];
    let special = |b: &u8| matches!(b, b'"' | b'\\' | b'(' | b')' | b',') || is_space(*b);
    if field.is_empty() || field.iter().any(special) {
        quote(start, b"", out);
    }
}

/// Puts quotes round what was written from `start` on; `\` and `"` inside get `escape` in front, or are doubled without one.
fn quote(start: usize, escape: &[u8], out: &mut Vec<u8>) {
    let plain = out.split_off(start);
    out.push(b'"');
    for byte in plain {
        if matches!(byte, b'"' | b'\\') {
            if escape.is_empty() {
                out.push(byte);
            } else {
                out.extend_from_slice(escape);
            }
        }
        out.push(byte);
    }
    out.push(b'"');
}
