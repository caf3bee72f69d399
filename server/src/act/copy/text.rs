//! COPY's text format: one row a line, values between delimiters, backslash escapes.

use crate::{
    act::copy::fields::{Fields, KEPT_BYTES, ROW_BYTES_LIMIT, RowDecoder},
    error::{Result, SqlError},
};

/// Decodes text rows.
pub(crate) struct TextDecoder {
    delimiter: u8,
    null: Vec<u8>,
    skip_header: bool,
    line: u64,
    /// The beginning of a line whose end has not come yet.
    pending: Vec<u8>,
    /// The line ended with a carriage return at the end of a piece: a line feed that follows belongs to it.
    after_return: bool,
    /// `\.` was met.
    ended: bool,
    value: Vec<u8>,
    /// How the line that was read last begins.
    start: Vec<u8>,
}

impl TextDecoder {
    pub(crate) fn new(delimiter: u8, null: &str, header: bool) -> Self {
        Self {
            delimiter,
            null: null.as_bytes().to_vec(),
            skip_header: header,
            line: 1,
            pending: Vec::new(),
            after_return: false,
            ended: false,
            value: Vec::new(),
            start: Vec::new(),
        }
    }

    fn end_line(&mut self, tail: &[u8], fields: &mut Fields) -> Result<()> {
        if self.pending.is_empty() {
            return self.take_line(tail, fields);
        }
        let mut line = std::mem::take(&mut self.pending);
        line.extend_from_slice(tail);
        let result = self.take_line(&line, fields);
        line.clear();
        self.pending = line;
        result
    }

    fn take_line(&mut self, line: &[u8], fields: &mut Fields) -> Result<()> {
        if line == b"\\." {
            self.ended = true;
            return Ok(());
        }
        if std::mem::take(&mut self.skip_header) {
            self.line += 1;
            return Ok(());
        }
        self.start.clear();
        self.start.extend_from_slice(&line[..line.len().min(KEPT_BYTES)]);
        if fields.width() == 0 && line.is_empty() {
            fields.end_row(self.line, line)?;
            self.line += 1;
            return Ok(());
        }
        let mut start = 0;
        let mut position = 0;
        while position <= line.len() {
            if position < line.len() && line[position] == b'\\' {
                // A lone backslash at the end stands for itself.
                position = (position + 2).min(line.len());
                continue;
            }
            if position == line.len() || line[position] == self.delimiter {
                self.take_value(&line[start..position], fields)?;
                start = position + 1;
            }
            position += 1;
        }
        fields.end_row(self.line, line)?;
        self.line += 1;
        Ok(())
    }

    fn take_value(&mut self, raw: &[u8], fields: &mut Fields) -> Result<()> {
        if raw == self.null {
            return fields.push(None);
        }
        if !raw.contains(&b'\\') {
            return fields.push(Some(raw));
        }
        self.value.clear();
        unescape(raw, &mut self.value);
        fields.push(Some(&self.value))
    }
}

impl RowDecoder for TextDecoder {
    fn push(&mut self, bytes: &[u8], fields: &mut Fields) -> Result<()> {
        let mut start = 0;
        if std::mem::take(&mut self.after_return) && bytes.first() == Some(&b'\n') {
            start = 1;
        }
        let mut position = start;
        while position < bytes.len() && !self.ended {
            let byte = bytes[position];
            if byte != b'\n' && byte != b'\r' {
                position += 1;
                continue;
            }
            // An escaped line feed is data.
            if escaped_end(&self.pending, &bytes[start..position]) {
                position += 1;
                continue;
            }
            self.end_line(&bytes[start..position], fields)?;
            if byte == b'\r' {
                match bytes.get(position + 1) {
                    Some(b'\n') => position += 1,
                    None => self.after_return = true,
                    Some(_) => {}
                }
            }
            position += 1;
            start = position;
        }
        if !self.ended {
            self.pending.extend_from_slice(&bytes[start.min(bytes.len())..]);
            if self.pending.len() > ROW_BYTES_LIMIT {
                return Err(SqlError::new("54000", "COPY row is too long"));
            }
        }
        Ok(())
    }

    fn finish(&mut self, fields: &mut Fields) -> Result<()> {
        if self.pending.is_empty() || self.ended {
            return Ok(());
        }
        self.end_line(&[], fields)
    }

    fn place(&self) -> (u64, Option<&[u8]>) {
        (self.line, Some(&self.start))
    }
}

/// Whether the line so far ends in an odd number of backslashes.
fn escaped_end(pending: &[u8], tail: &[u8]) -> bool {
    let count = |bytes: &[u8]| bytes.iter().rev().take_while(|byte| **byte == b'\\').count();
    let in_tail = count(tail);
    let total = if in_tail == tail.len() { in_tail + count(pending) } else { in_tail };
    total % 2 == 1
}

fn unescape(raw: &[u8], value: &mut Vec<u8>) {
    let mut bytes = raw.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            value.push(byte);
            continue;
        }
        match bytes.next() {
            None => value.push(b'\\'),
            Some(b'b') => value.push(8),
            Some(b'f') => value.push(12),
            Some(b'n') => value.push(b'\n'),
            Some(b'r') => value.push(b'\r'),
            Some(b't') => value.push(b'\t'),
            Some(b'v') => value.push(11),
            Some(b'x') if bytes.peek().is_some_and(u8::is_ascii_hexdigit) => {
                let mut code = 0u32;
                for _ in 0..2 {
                    let Some(digit) = bytes.peek().and_then(|byte| (*byte as char).to_digit(16)) else { break };
                    code = code * 16 + digit;
                    bytes.next();
                }
                value.push(code as u8);
            }
            Some(first @ b'0'..=b'7') => {
                let mut code = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.peek().and_then(|byte| (*byte as char).to_digit(8)) else { break };
                    code = code * 8 + digit;
                    bytes.next();
                }
                value.push(code as u8);
            }
            Some(other) => value.push(other),
        }
    }
}
