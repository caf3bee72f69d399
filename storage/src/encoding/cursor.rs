//! Reading numbers and lengths out of bytes that may be damaged.

use crate::error::{Result, StorageError};

/// The rest of some bytes, and what to call them in an error.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    name: &'static str,
}

impl<'a> Cursor<'a> {
    /// All of `bytes`; `name` stands in errors ("epoch log record").
    pub(crate) fn new(bytes: &'a [u8], name: &'static str) -> Self {
        Self { rest: bytes, name }
    }

    /// Bytes not read yet.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// The error of damaged bytes.
    pub(crate) fn corrupt(&self, detail: impl Into<String>) -> StorageError {
        StorageError::Corrupt { file: self.name.into(), detail: detail.into() }
    }

    /// The next `length` bytes.
    pub(crate) fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let Some((bytes, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.corrupt(format!("{length} bytes expected, {} left", self.rest.len())));
        };
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("as many bytes as asked for"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        self.array().map(i64::from_le_bytes)
    }

    /// The next `length` bytes as text.
    pub(crate) fn text(&mut self, length: usize) -> Result<&'a str> {
        std::str::from_utf8(self.bytes(length)?).map_err(|_| self.corrupt("text is not UTF-8"))
    }

    /// Bytes behind their length (u32), as [`write_bytes`] writes them.
    pub(crate) fn sized_bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()? as usize;
        self.bytes(length)
    }

    /// Text behind its length (u32).
    pub(crate) fn sized_text(&mut self) -> Result<&'a str> {
        let length = self.u32()? as usize;
        self.text(length)
    }
}

/// Appends bytes behind their length (u32).
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}
