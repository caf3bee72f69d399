//! The normal form in which `jsonb` values are held: Postgres' output text. Members are sorted by length of their name, then bytewise; of
//! several with one name the last stays; one blank follows each colon and comma; numbers are plain decimal text with their zeros kept
//! (`1.50e1` is `15.0`); strings are escaped only where JSON asks for it.

use super::json_scan::{JsonError, JsonKind, JsonReader, unescape};

/// Digits a number may have on either side of its point.
const MAX_DIGITS: i64 = 16_383;

/// The normal form of a JSON text, or `None` if it is none.
pub fn normalize(text: &[u8]) -> Option<String> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8);
    let mut reader = JsonReader::new(text, 0);
    value(text, &mut reader, &mut out).ok()?;
    reader.finish().ok()?;
    String::from_utf8(out).ok()
}

fn value(text: &[u8], reader: &mut JsonReader<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    // The whole value is checked first, so that nothing below meets broken grammar and depth is bounded.
    reader.skip_blanks();
    let start = reader.position();
    let found = reader.value()?;
    let raw = &text[found.start..found.end];
    match found.kind {
        JsonKind::String { .. } => string(raw, out, start),
        JsonKind::Number => number(raw, out).ok_or(JsonError { at: start }),
        JsonKind::Boolean | JsonKind::Null => {
            out.extend_from_slice(raw);
            Ok(())
        }
        JsonKind::Array => {
            let mut inner = JsonReader::new(text, found.start + 1);
            out.push(b'[');
            let mut first = true;
            while !inner.eat(b']') {
                if !first {
                    inner.expect(b',')?;
                    out.extend_from_slice(b", ");
                }
                first = false;
                value(text, &mut inner, out)?;
            }
            out.push(b']');
            Ok(())
        }
        JsonKind::Object => object(text, found.start, out),
    }
}

fn object(text: &[u8], start: usize, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut inner = JsonReader::new(text, start + 1);
    let mut members: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    while !inner.eat(b'}') {
        if !members.is_empty() {
            inner.expect(b',')?;
        }
        let name = inner.string()?;
        let mut plain = Vec::new();
        if !unescape(&text[name.start + 1..name.end - 1], &mut plain) {
            return Err(JsonError { at: name.start });
        }
        inner.expect(b':')?;
        let mut member = Vec::new();
        value(text, &mut inner, &mut member)?;
        members.push((plain, member));
    }
    // The sort is stable: of several members with one name the last written comes last.
    members.sort_by(|left, right| (left.0.len(), &left.0).cmp(&(right.0.len(), &right.0)));
    out.push(b'{');
    let mut first = true;
    for (index, (name, member)) in members.iter().enumerate() {
        if members.get(index + 1).is_some_and(|next| next.0 == *name) {
            continue;
        }
        if !first {
            out.extend_from_slice(b", ");
        }
        first = false;
        write_string(name, out);
        out.extend_from_slice(b": ");
        out.extend_from_slice(member);
    }
    out.push(b'}');
    Ok(())
}

fn string(raw: &[u8], out: &mut Vec<u8>, at: usize) -> Result<(), JsonError> {
    let inside = &raw[1..raw.len() - 1];
    if inside.iter().any(|byte| *byte < b' ') {
        return Err(JsonError { at });
    }
    let mut plain = Vec::with_capacity(inside.len());
    if !unescape(inside, &mut plain) {
        return Err(JsonError { at });
    }
    write_string(&plain, out);
    Ok(())
}

/// Appends a JSON string with its quotes.
pub fn write_string(plain: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in plain {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=31 => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(*byte),
        }
    }
    out.push(b'"');
}

/// Appends a JSON number without its exponent.
fn number(raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let (negative, raw) = raw.strip_prefix(b"-").map_or((false, raw), |rest| (true, rest));
    let (mantissa, exponent) = match raw.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&raw[..at], super::scalar::parse_i64(&raw[at + 1..])?),
        None => (raw, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    // The value is 0.digits * 10^whole.
    let whole = i64::try_from(point).ok()?.checked_add(exponent)?;
    let count = i64::try_from(digits.len()).ok()?;
    if digits.iter().all(|digit| *digit == b'0') {
        // Zero keeps its scale and loses its sign.
        let scale = usize::try_from((count - whole).clamp(0, MAX_DIGITS)).ok()?;
        out.push(b'0');
        if scale > 0 {
            out.push(b'.');
            out.resize(out.len() + scale, b'0');
        }
        return Some(());
    }
    if whole > MAX_DIGITS || count - whole > MAX_DIGITS {
        return None;
    }
    if negative {
        out.push(b'-');
    }
    let at = |place: i64| usize::try_from(place).ok().and_then(|place| digits.get(place)).copied().unwrap_or(b'0');
    let first = (0..whole).find(|place| at(*place) != b'0');
    match first {
        Some(first) => out.extend((first..whole).map(at)),
        None => out.push(b'0'),
    }
    if count > whole {
        out.push(b'.');
        out.extend((whole..count).map(at));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_forms_as_postgres_prints_them() {
        for (text, expected) in [
            (r#" {"bb":1,"a":[1,2 , {"x":null}],"b":true,"a":2} "#, Some(r#"{"a": 2, "b": true, "bb": 1}"#)),
            (r#"{"z":[],"y":{}}"#, Some(r#"{"y": {}, "z": []}"#)),
            (r#""\u0041\n\/\u00e9""#, Some(r#""A\n/é""#)),
            ("1.50e1", Some("15.0")),
            ("1e3", Some("1000")),
            ("12.5e-3", Some("0.0125")),
            ("-0", Some("0")),
            ("0.00", Some("0.00")),
            ("-0.10", Some("-0.10")),
            ("120", Some("120")),
            ("0e5", Some("0")),
            ("1e99999", None),
            ("{\"a\":1,}", None),
            ("\"a\tb\"", None),
            ("", None),
        ] {
            assert_eq!(normalize(text.as_bytes()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn normalizing_twice_changes_nothing() {
        let once = normalize(r#"{"k": [1.10, "x\"y", {"c": -1e-7}], "": 0}"#.as_bytes()).unwrap();
        assert_eq!(normalize(once.as_bytes()), Some(once));
    }
}
