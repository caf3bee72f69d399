//! Tokens of a JSON text.

use super::settings::TextError;

/// One token. Positions are bytes of the whole text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    BeginObject,
    EndObject,
    BeginArray,
    EndArray,
    Colon,
    Comma,
    /// With its quotes.
    String(usize, usize),
    Number(usize, usize),
    True,
    False,
    Null,
    End,
}

pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
    /// Start of the newest token, for error messages.
    token_start: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, token_start: 0 }
    }

    /// The bytes of the newest token.
    pub(super) fn token_text(&self) -> &'a str {
        &self.text[self.token_start..self.at]
    }

    pub(super) fn slice(&self, start: usize, end: usize) -> &'a str {
        &self.text[start..end]
    }

    pub(super) fn error(&self, detail: impl Into<String>) -> TextError {
        TextError::new("22P02", "invalid input syntax for type json").with_detail(detail)
    }

    pub(super) fn next(&mut self) -> Result<Token, TextError> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.token_start = self.at;
        let Some(&byte) = bytes.get(self.at) else { return Ok(Token::End) };
        let single = match byte {
            b'{' => Some(Token::BeginObject),
            b'}' => Some(Token::EndObject),
            b'[' => Some(Token::BeginArray),
            b']' => Some(Token::EndArray),
            b':' => Some(Token::Colon),
            b',' => Some(Token::Comma),
            _ => None,
        };
        if let Some(token) = single {
            self.at += 1;
            return Ok(token);
        }
        match byte {
            b'"' => self.string(),
            b'-' | b'0'..=b'9' => self.number(),
            _ => self.word(),
        }
    }

    fn string(&mut self) -> Result<Token, TextError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        self.at += 1;
        loop {
            match bytes.get(self.at) {
                None => return Err(self.invalid_token()),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Token::String(start, self.at));
                }
                Some(b'\\') => self.at += if self.at + 1 < bytes.len() { 2 } else { 1 },
                Some(0..=0x1f) => {
                    return Err(self.error(format!("Character with value 0x{:02x} must be escaped.", bytes[self.at])));
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn number(&mut self) -> Result<Token, TextError> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digits = |mut at: usize| {
            let first = at;
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            (at, at > first)
        };
        let mut at = start + usize::from(bytes[start] == b'-');
        let mut good = true;
        if bytes.get(at) == Some(&b'0') {
            at += 1;
        } else {
            (at, good) = digits(at);
        }
        if good && bytes.get(at) == Some(&b'.') {
            (at, good) = digits(at + 1);
        }
        if good && matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1;
            at += usize::from(matches!(bytes.get(at), Some(b'+' | b'-')));
            (at, good) = digits(at);
        }
        self.at = at;
        if !good || bytes.get(at).is_some_and(|b| is_word_byte(*b)) {
            return Err(self.invalid_token());
        }
        Ok(Token::Number(start, at))
    }

    fn word(&mut self) -> Result<Token, TextError> {
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(|b| !is_word_byte(b)).unwrap_or(rest.len());
        let token = match &rest[..end] {
            "true" => Token::True,
            "false" => Token::False,
            "null" => Token::Null,
            _ => return Err(self.invalid_token()),
        };
        self.at += end;
        Ok(token)
    }

    /// The token at `token_start`, extended to the end of its word.
    fn invalid_token(&mut self) -> TextError {
        let rest = &self.text[self.token_start..];
        let past = self.at - self.token_start;
        let end = rest.bytes().enumerate().position(|(at, b)| at >= past && !is_word_byte(b)).unwrap_or(rest.len());
        let end = if end == 0 { rest.chars().next().map_or(0, char::len_utf8) } else { end };
        let shown = &rest[..end];
        self.error(format!("Token \"{shown}\" is invalid."))
    }
}

/// Bytes that Postgres takes into a malformed token.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The value of a string token (without its quotes).
pub(super) fn unescape(raw: &str) -> Result<String, TextError> {
    let invalid = |detail: &str| TextError::new("22P02", "invalid input syntax for type json").with_detail(detail);
    let unicode = |detail: &str| TextError::new("22P05", "unsupported Unicode escape sequence").with_detail(detail);
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = rest[at + 1..].chars().next().ok_or_else(|| invalid("Escape sequence is incomplete."))?;
        rest = &rest[at + 1 + escape.len_utf8()..];
        let plain = match escape {
            '"' | '\\' | '/' => escape,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (first, after) = four_hex_digits(rest)?;
                rest = after;
                match first {
                    0 => return Err(unicode("\\u0000 cannot be converted to text.")),
                    0xd800..=0xdbff => {
                        let low = rest.strip_prefix("\\u").map(four_hex_digits).transpose()?;
                        let Some((low @ 0xdc00..=0xdfff, after)) = low else {
                            return Err(invalid("Unicode low surrogate must follow a high surrogate."));
                        };
                        rest = after;
                        let code = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
                        char::from_u32(code).ok_or_else(|| invalid("Unicode low surrogate must follow a high surrogate."))?
                    }
                    _ => char::from_u32(first).ok_or_else(|| invalid("Unicode low surrogate must follow a high surrogate."))?,
                }
            }
            _ => return Err(invalid(&format!("Escape sequence \"\\{escape}\" is invalid."))),
        };
        out.push(plain);
    }
    out.push_str(rest);
    Ok(out)
}

fn four_hex_digits(text: &str) -> Result<(u32, &str), TextError> {
    let digits = text.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let value = value.ok_or_else(|| {
        TextError::new("22P02", "invalid input syntax for type json").with_detail("\"\\u\" must be followed by four hexadecimal digits.")
    })?;
    Ok((value, &text[4..]))
}
