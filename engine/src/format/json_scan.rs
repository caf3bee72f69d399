//! A JSON reader that allocates nothing: it checks the grammar of RFC 8259 and says where each value lies. Numbers stay text, so that no
//! digit is lost.

use memchr::memchr2;

/// Nesting a value may have.
const MAX_DEPTH: usize = 128;

/// What a value is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JsonKind {
    /// Text in quotes.
    String {
        /// It holds a backslash.
        escaped: bool,
    },
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`.
    Null,
    /// `[...]`.
    Array,
    /// `{...}`.
    Object,
}

/// Bytes `start..end` of the text: a whole value, with its quotes or brackets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonValue {
    /// What it is.
    pub kind: JsonKind,
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
}

/// Reads a text from front to back.
#[derive(Debug)]
pub struct JsonReader<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

/// The grammar was broken at this byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JsonError {
    /// Where.
    pub at: usize,
}

type Result<T> = std::result::Result<T, JsonError>;

impl<'a> JsonReader<'a> {
    /// A reader of `text` from byte `at` on.
    pub fn new(text: &'a [u8], at: usize) -> Self {
        Self { text, at, depth: 0 }
    }

    /// The next byte to read.
    pub fn position(&self) -> usize {
        self.at
    }

    fn error<T>(&self) -> Result<T> {
        Err(JsonError { at: self.at })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    /// Skips blanks.
    pub fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Takes `byte` if it is next, after blanks.
    pub fn eat(&mut self, byte: u8) -> bool {
        self.skip_blanks();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes `byte`, after blanks.
    pub fn expect(&mut self, byte: u8) -> Result<()> {
        if self.eat(byte) { Ok(()) } else { self.error() }
    }

    /// Checks that nothing follows but blanks.
    pub fn finish(&mut self) -> Result<()> {
        self.skip_blanks();
        if self.at == self.text.len() { Ok(()) } else { self.error() }
    }

    /// The string that comes next.
    pub fn string(&mut self) -> Result<JsonValue> {
        self.expect(b'"')?;
        let start = self.at - 1;
        let mut escaped = false;
        loop {
            let Some(length) = memchr2(b'"', b'\\', &self.text[self.at..]) else { return self.error() };
            self.at += length + 1;
            if self.text[self.at - 1] == b'"' {
                return Ok(JsonValue { kind: JsonKind::String { escaped }, start, end: self.at });
            }
            escaped = true;
            match self.peek() {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
                Some(b'u') if self.text.get(self.at + 1..self.at + 5).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)) => {
                    self.at += 5
                }
                _ => return self.error(),
            }
        }
    }

    /// The value that comes next, whole.
    pub fn value(&mut self) -> Result<JsonValue> {
        self.skip_blanks();
        let start = self.at;
        let kind = match self.peek() {
            Some(b'"') => return self.string(),
            Some(b'{') => self.nested(b'}', JsonKind::Object)?,
            Some(b'[') => self.nested(b']', JsonKind::Array)?,
            Some(b't') => self.word(b"true", JsonKind::Boolean)?,
            Some(b'f') => self.word(b"false", JsonKind::Boolean)?,
            Some(b'n') => self.word(b"null", JsonKind::Null)?,
            Some(b'-' | b'0'..=b'9') => self.number()?,
            _ => return self.error(),
        };
        Ok(JsonValue { kind, start, end: self.at })
    }

    fn nested(&mut self, close: u8, kind: JsonKind) -> Result<JsonKind> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error();
        }
        if !self.eat(close) {
            loop {
                if kind == JsonKind::Object {
                    self.string()?;
                    self.expect(b':')?;
                }
                self.value()?;
                if !self.eat(b',') {
                    break;
                }
            }
            self.expect(close)?;
        }
        self.depth -= 1;
        Ok(kind)
    }

    fn word(&mut self, word: &[u8], kind: JsonKind) -> Result<JsonKind> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(kind)
        } else {
            self.error()
        }
    }

    fn digits(&mut self) -> Result<()> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { self.error() } else { Ok(()) }
    }

    fn number(&mut self) -> Result<JsonKind> {
        self.at += usize::from(self.peek() == Some(b'-'));
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(JsonKind::Number)
    }
}

/// Appends the characters that the inside of a JSON string (without its quotes, its grammar checked) stands for. `false` if it holds an escape
/// that is no character: a lone surrogate, or NUL, which Postgres has in no text.
pub fn unescape(inside: &[u8], out: &mut Vec<u8>) -> bool {
    let mut at = 0;
    while at < inside.len() {
        let Some(length) = memchr::memchr(b'\\', &inside[at..]) else {
            out.extend_from_slice(&inside[at..]);
            break;
        };
        out.extend_from_slice(&inside[at..at + length]);
        at += length + 2;
        match inside[at - 1] {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let mut code = hex4(inside, at);
                at += 4;
                if (0xd800..0xdc00).contains(&code) && inside[at..].starts_with(b"\\u") && inside.len() >= at + 6 {
                    let low = hex4(inside, at + 2);
                    if (0xdc00..0xe000).contains(&low) {
                        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
                        at += 6;
                    }
                }
                match char::from_u32(code) {
                    Some(character) if code != 0 => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                    _ => return false,
                }
            }
            other => out.push(other),
        }
    }
    true
}

fn hex4(text: &[u8], at: usize) -> u32 {
    text[at..at + 4].iter().fold(0, |value, byte| value << 4 | (*byte as char).to_digit(16).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_what_serde_json_accepts() {
        for text in [
            "{}",
            "[]",
            " [1, 2.5e-3 ,\"a\\u00e9\\n\", null,true,false,{\"a\":{\"b\":[[]]}}] ",
            "\"\"",
            "-0",
            "0.1",
            "1E+5",
            "01",
            "1.",
            ".5",
            "-",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "{a:1}",
            "\"\\x\"",
            "\"\\u12\"",
            "\"open",
            "tru",
            "nul",
            "[1 2]",
            "1 2",
            "",
            "{\"a\":1}}",
        ] {
            let mut reader = JsonReader::new(text.as_bytes(), 0);
            let valid = reader.value().and_then(|_| reader.finish()).is_ok();
            assert_eq!(valid, serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
        }
        let deep = "[".repeat(500);
        assert!(JsonReader::new(deep.as_bytes(), 0).value().is_err());
    }

    #[test]
    fn unescapes() {
        let mut out = Vec::new();
        assert!(unescape(br#"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00z"#, &mut out));
        assert_eq!(std::str::from_utf8(&out).unwrap(), "a\"\\/\u{8}\u{c}\n\r\té😀z");
        for bad in [&br"\ud83d"[..], br"\ud83dx", br"\ude00", br"\u0000", br"\ud83d\u0041"] {
            assert!(!unescape(bad, &mut Vec::new()));
        }
    }
}
