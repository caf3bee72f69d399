//! The messages of a client, decoded from frames.

use bytes::{Buf, Bytes};

use super::frame::Frame;
use crate::error::SqlError;

/// What a client may send after the startup.
#[derive(Debug)]
pub(super) enum Request {
    Query(String),
    Parse { statement: String, sql: String, parameter_types: Vec<i32> },
    Bind(Bind),
    DescribeStatement(String),
    DescribePortal(String),
    Execute { portal: String, max_rows: usize },
    CloseStatement(String),
    ClosePortal(String),
    Flush,
    Sync,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    Password,
    FunctionCall,
    Terminate,
}

/// Values for a prepared statement's parameters, as they came.
#[derive(Debug)]
pub(super) struct Bind {
    pub(super) portal: String,
    pub(super) statement: String,
    /// None, one for all, or one for each parameter; true is binary.
    pub(super) parameter_formats: Vec<bool>,
    pub(super) parameters: Vec<Option<Bytes>>,
    /// None, one for all, or one for each column; true is binary.
    pub(super) result_formats: Vec<bool>,
}

impl Request {
    /// Whether, after an error, this is skipped up to the next Sync.
    pub(super) fn is_extended(kind: u8) -> bool {
        matches!(kind, b'P' | b'B' | b'D' | b'E' | b'C' | b'H')
    }

    /// Decodes a frame whose type the reader has let through.
    ///
    /// # Errors
    /// 08P01 when the body is not what its type says, 22021 when a text is not UTF-8.
    pub(super) fn decode(frame: Frame) -> Result<Self, SqlError> {
        let mut body = Body { bytes: frame.body };
        let request = match frame.kind {
            b'Q' => Self::Query(body.text()?),
            b'P' => Self::Parse { statement: body.text()?, sql: body.text()?, parameter_types: body.list(Body::int32)? },
            b'B' => Self::Bind(Bind {
                portal: body.text()?,
                statement: body.text()?,
                parameter_formats: body.list(Body::format)?,
                parameters: body.list(Body::value)?,
                result_formats: body.list(Body::format)?,
            }),
            b'D' => match body.byte()? {
                b'S' => Self::DescribeStatement(body.text()?),
                b'P' => Self::DescribePortal(body.text()?),
                other => return Err(violation(format!("invalid DESCRIBE message subtype {other}"))),
            },
            b'C' => match body.byte()? {
                b'S' => Self::CloseStatement(body.text()?),
                b'P' => Self::ClosePortal(body.text()?),
                other => return Err(violation(format!("invalid CLOSE message subtype {other}"))),
            },
            // A negative count means no limit, as 0 does.
            b'E' => Self::Execute { portal: body.text()?, max_rows: usize::try_from(body.int32()?).unwrap_or(0) },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'd' => return Ok(Self::CopyData(body.bytes)),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(body.text()?),
            b'p' => return Ok(Self::Password),
            b'F' => return Ok(Self::FunctionCall),
            b'X' => return Ok(Self::Terminate),
            other => return Err(violation(format!("invalid frontend message type {other}"))),
        };
        if body.bytes.is_empty() { Ok(request) } else { Err(violation("invalid message format")) }
    }
}

/// 08P01.
pub(super) fn violation(message: impl Into<String>) -> SqlError {
    SqlError::new("08P01", message)
}

struct Body {
    bytes: Bytes,
}

impl Body {
    fn take(&mut self, count: usize) -> Result<Bytes, SqlError> {
        if self.bytes.len() < count { Err(violation("insufficient data left in message")) } else { Ok(self.bytes.split_to(count)) }
    }

    fn byte(&mut self) -> Result<u8, SqlError> {
        Ok(self.take(1)?[0])
    }

    fn int16(&mut self) -> Result<i16, SqlError> {
        Ok(self.take(2)?.get_i16())
    }

    fn int32(&mut self) -> Result<i32, SqlError> {
        Ok(self.take(4)?.get_i32())
    }

    /// A text that ends with a zero byte.
    fn text(&mut self) -> Result<String, SqlError> {
        let end = self.bytes.iter().position(|byte| *byte == 0).ok_or_else(|| violation("invalid string in message"))?;
        let text = self.bytes.split_to(end);
        self.bytes.advance(1);
        utf8(&text).map(str::to_string)
    }

    fn format(&mut self) -> Result<bool, SqlError> {
        match self.int16()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(SqlError::new("22023", format!("unsupported format code: {other}"))),
        }
    }

    /// A length, or -1 for NULL, and the bytes.
    fn value(&mut self) -> Result<Option<Bytes>, SqlError> {
        match self.int32()? {
            -1 => Ok(None),
            length => self.take(usize::try_from(length).map_err(|_| violation("invalid message format"))?).map(Some),
        }
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Result<T, SqlError>) -> Result<Vec<T>, SqlError> {
        let count = self.int16()? as u16;
        // Every item has at least two bytes, so a short message cannot ask for much memory.
        let mut items = Vec::with_capacity(usize::from(count).min(self.bytes.len() / 2));
        for _ in 0..count {
            items.push(item(self)?);
        }
        Ok(items)
    }
}

/// Bytes that must be text.
///
/// # Errors
/// 22021 naming the first bad bytes.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str, SqlError> {
    let invalid = |bad: &[u8]| {
        let shown: Vec<String> = bad.iter().map(|byte| format!("0x{byte:02x}")).collect();
        SqlError::new("22021", format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")))
    };
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.contains(&0) => {
            let _ = text;
            Err(invalid(&[0]))
        }
        Ok(text) => Ok(text),
        Err(error) => {
            let bad = &bytes[error.valid_up_to()..];
            let length = error.error_len().unwrap_or(bad.len()).clamp(1, 4);
            Err(invalid(&bad[..length.min(bad.len())]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, body: &[u8]) -> Frame {
        Frame { kind, body: Bytes::copy_from_slice(body) }
    }

    #[test]
    fn well_formed_messages() {
        assert!(matches!(Request::decode(frame(b'Q', b"SELECT 1\0")), Ok(Request::Query(sql)) if sql == "SELECT 1"));
        let parse = Request::decode(frame(b'P', b"s\0SELECT $1\0\0\x01\0\0\0\x17"));
        assert!(matches!(parse, Ok(Request::Parse { parameter_types, .. }) if parameter_types == [23]));
        let bind = Request::decode(frame(b'B', b"\0s\0\0\x01\0\x01\0\x02\0\0\0\x02hi\xff\xff\xff\xff\0\0"));
        let Ok(Request::Bind(bind)) = bind else { panic!("{bind:?}") };
        assert_eq!(bind.parameters, vec![Some(Bytes::from_static(b"hi")), None]);
        assert_eq!((bind.parameter_formats, bind.result_formats), (vec![true], vec![]));
        assert!(matches!(Request::decode(frame(b'E', b"\0\xff\xff\xff\xff")), Ok(Request::Execute { max_rows: 0, .. })));
    }

    #[test]
    fn broken_messages_are_refused() {
        let broken: &[(u8, &[u8])] = &[
            (b'Q', b"no end"),
            (b'Q', b"a\0b\0"),
            (b'P', b"\0\0\x7f\xff"),
            (b'B', b"\0\0\0\x01"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe"),
            (b'D', b"Xname\0"),
            (b'C', b""),
            (b'E', b"\0\0"),
            (b'S', b"x"),
        ];
        for (kind, body) in broken {
            let error = Request::decode(frame(*kind, body)).expect_err("broken");
            assert_eq!(error.sqlstate, "08P01", "{kind} {body:?}");
        }
        let error = Request::decode(frame(b'Q', b"SELECT '\xc3\x28'\0")).expect_err("not UTF-8");
        assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("22021", "invalid byte sequence for encoding \"UTF8\": 0xc3"));
    }
}
