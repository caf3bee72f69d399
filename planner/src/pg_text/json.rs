//! jsonb: the normalised text is the stored value.
//!
//! Normal form, as Postgres prints jsonb: one space after `:` and `,`; keys of an object once each (the last wins), ordered by length in
//! bytes, then by bytes; numbers as numeric prints them (no exponent, digits after the point kept); strings with the shortest escapes.

use super::json_lexer::{Lexer, Token, unescape};
use super::settings::TextError;

/// Deeper texts are refused; the parser itself keeps its stack on the heap.
const MAX_DEPTH: usize = 6_000;
/// Postgres' own bound of a jsonb; exponents could otherwise make a short text huge.
const MAX_BYTES: usize = 0x0fff_ffff;

/// An object or array that has been begun.
struct Open {
    is_object: bool,
    /// Where it starts in the output.
    start: usize,
    /// Members of an object: key and its `"key": value` range in the output.
    members: Vec<(String, usize, usize)>,
    /// Whether keys have come in order so far, so that the output need not be rearranged.
    sorted: bool,
    count: usize,
}

/// The normalised form of a JSON text.
pub fn normalize_json(text: &str) -> Result<String, TextError> {
    let mut lexer = Lexer::new(text);
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    let mut open: Vec<Open> = Vec::new();
    let mut token = lexer.next()?;
    loop {
        // One value begins at `token`.
        let ended = match token {
            Token::BeginObject | Token::BeginArray => {
                if open.len() == MAX_DEPTH {
                    return Err(TextError::new("54001", "stack depth limit exceeded"));
                }
                let is_object = token == Token::BeginObject;
                open.push(Open { is_object, start: out.len(), members: Vec::new(), sorted: true, count: 0 });
                out.push(if is_object { b'{' } else { b'[' });
                token = lexer.next()?;
                let closing = if is_object { Token::EndObject } else { Token::EndArray };
                if token == closing {
                    close(&mut open, &mut out);
                    true
                } else {
                    if is_object {
                        begin_member(&mut lexer, token, open.last_mut().expect("just pushed"), &mut out)?;
                        token = lexer.next()?;
                    }
                    false
                }
            }
            _ => {
                write_scalar(&lexer, token, &mut out)?;
                true
            }
        };
        if out.len() > MAX_BYTES {
            return Err(TextError::new("54000", format!("total size of jsonb elements exceeds the maximum of {MAX_BYTES} bytes")));
        }
        if ended && !continue_after_value(&mut lexer, &mut token, &mut open, &mut out)? {
            return Ok(String::from_utf8(out).expect("pieces of valid text between ASCII"));
        }
    }
}

/// After a value: commas and closing brackets up to the next value, which `token` then begins. False at the end of the text.
fn continue_after_value(lexer: &mut Lexer<'_>, token: &mut Token, open: &mut Vec<Open>, out: &mut Vec<u8>) -> Result<bool, TextError> {
    loop {
        *token = lexer.next()?;
        let Some(innermost) = open.last_mut() else {
            return match token {
                Token::End => Ok(false),
                _ => Err(lexer.error(format!("Expected end of input, but found \"{}\".", lexer.token_text()))),
            };
        };
        innermost.count += 1;
        if let Some(member) = innermost.members.last_mut() {
            member.2 = out.len();
        }
        match (*token, innermost.is_object) {
            (Token::Comma, is_object) => {
                out.extend_from_slice(b", ");
                *token = lexer.next()?;
                if is_object {
                    let key = *token;
                    begin_member(lexer, key, innermost, out)?;
                    *token = lexer.next()?;
                }
                return Ok(true);
            }
            (Token::EndObject, true) | (Token::EndArray, false) => close(open, out),
            (Token::End, _) => return Err(lexer.error("The input string ended unexpectedly.")),
            (_, true) => return Err(lexer.error(format!("Expected \",\" or \"}}\", but found \"{}\".", lexer.token_text()))),
            (_, false) => return Err(lexer.error(format!("Expected \",\" or \"]\", but found \"{}\".", lexer.token_text()))),
        }
    }
}

/// `"key": `; the value follows.
fn begin_member(lexer: &mut Lexer<'_>, token: Token, object: &mut Open, out: &mut Vec<u8>) -> Result<(), TextError> {
    let Token::String(start, end) = token else {
        return Err(match token {
            Token::End => lexer.error("The input string ended unexpectedly."),
            _ if object.count == 0 => lexer.error(format!("Expected string or \"}}\", but found \"{}\".", lexer.token_text())),
            _ => lexer.error(format!("Expected string, but found \"{}\".", lexer.token_text())),
        });
    };
    let key = unescape(lexer.slice(start + 1, end - 1))?;
    match lexer.next()? {
        Token::Colon => {}
        Token::End => return Err(lexer.error("The input string ended unexpectedly.")),
        _ => return Err(lexer.error(format!("Expected \":\", but found \"{}\".", lexer.token_text()))),
    }
    if let Some((previous, _, _)) = object.members.last() {
        object.sorted &= (previous.len(), previous.as_str()) < (key.len(), key.as_str());
    }
    let begin = out.len();
    write_json_string(&key, out);
    out.extend_from_slice(b": ");
    object.members.push((key, begin, begin));
    Ok(())
}

/// Ends the innermost object or array; an object's members are put in order.
fn close(open: &mut Vec<Open>, out: &mut Vec<u8>) {
    let Some(mut closed) = open.pop() else { return };
    if !closed.sorted {
        // A stable sort keeps equal keys in their order, so that the last of them is the one that counts.
        closed.members.sort_by(|a, b| (a.0.len(), &a.0).cmp(&(b.0.len(), &b.0)));
        let mut ordered = Vec::with_capacity(out.len() - closed.start);
        for (at, (key, begin, end)) in closed.members.iter().enumerate() {
            if closed.members.get(at + 1).is_some_and(|(next, _, _)| next == key) {
                continue;
            }
            ordered.extend_from_slice(if ordered.is_empty() { b"{" } else { b", " });
            ordered.extend_from_slice(&out[*begin..*end]);
        }
        out.truncate(closed.start);
        out.extend_from_slice(&ordered);
    }
    out.push(if closed.is_object { b'}' } else { b']' });
}

fn write_scalar(lexer: &Lexer<'_>, token: Token, out: &mut Vec<u8>) -> Result<(), TextError> {
    match token {
        Token::String(start, end) => write_json_string(&unescape(lexer.slice(start + 1, end - 1))?, out),
        Token::Number(start, end) => write_number(lexer.slice(start, end), out)?,
        Token::True => out.extend_from_slice(b"true"),
        Token::False => out.extend_from_slice(b"false"),
        Token::Null => out.extend_from_slice(b"null"),
        Token::End => return Err(lexer.error("The input string ended unexpectedly.")),
        Token::EndObject | Token::EndArray | Token::Colon | Token::Comma | Token::BeginObject | Token::BeginArray => {
            return Err(lexer.error(format!("Expected JSON value, but found \"{}\".", lexer.token_text())));
        }
    }
    Ok(())
}

/// A JSON string with quotes: control characters, quotes and backslashes escaped, all else as it is.
pub fn write_json_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// A JSON number as numeric prints it: 1.50 stays, 1e2 is 100, -0 is 0, 1.5e-3 is 0.0015.
fn write_number(text: &str, out: &mut Vec<u8>) -> Result<(), TextError> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let overflow = || TextError::new("22003", "value overflows numeric format");
    let exponent = i64::from(exponent.parse::<i32>().map_err(|_| overflow())?);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    let is_zero = digits.iter().all(|digit| *digit == b'0');
    // Digits before and after the point once the exponent has moved it; the bounds are numeric's.
    let before = whole.len() as i64 + exponent;
    let after = (fraction.len() as i64 - exponent).max(0);
    if (before > 131_072 && !is_zero) || after > 16_383 {
        return Err(overflow());
    }
    if negative && !is_zero {
        out.push(b'-');
    }
    let digit = |at: i64| usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(b'0');
    let first = if is_zero { None } else { (0..before).find(|at| digit(*at) != b'0') };
    match first {
        Some(first) => out.extend((first..before).map(digit)),
        None => out.push(b'0'),
    }
    if after > 0 {
        out.push(b'.');
        out.extend((before..before + after).map(digit));
    }
    Ok(())
}
