//! Byte encodings of rows: keys that sort as their values do ([`key`]), whole rows with columns at fixed places ([`row`]), and batches
//! column by column ([`batch`]) for logs.
//!
//! All of them are our own and versioned, because bytes written by one release are read by the next. All work column by column
//! over one arena; none allocates per row.

pub mod batch;
mod bytes;
pub(crate) mod cursor;
pub(crate) mod data_type;
pub mod key;
mod primitive;
pub mod row;
#[cfg(test)]
pub(crate) mod testing;

/// Byte rows in one arena.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedRows {
    /// Where each row ends, after a leading 0.
    offsets: Vec<usize>,
    bytes: Vec<u8>,
}

impl Default for EncodedRows {
    fn default() -> Self {
        Self { offsets: vec![0], bytes: Vec::new() }
    }
}

impl EncodedRows {
    /// No rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// No rows, with room for `rows` rows of `bytes` bytes together.
    pub fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self { offsets, bytes: Vec::with_capacity(bytes) }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, index: usize) -> &[u8] {
        &self.bytes[self.offsets[index]..self.offsets[index + 1]]
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> + DoubleEndedIterator + Clone {
        self.offsets.windows(2).map(|ends| &self.bytes[ends[0]..ends[1]])
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[u8]) {
        self.bytes.extend_from_slice(row);
        self.offsets.push(self.bytes.len());
    }

    /// Appends a row made of two parts.
    pub fn push_pair(&mut self, first: &[u8], second: &[u8]) {
        self.bytes.extend_from_slice(first);
        self.push(second);
    }

    /// Removes all rows and keeps the room.
    pub fn clear(&mut self) {
        self.offsets.truncate(1);
        self.bytes.clear();
    }

    /// Bytes of all rows together.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes this takes in memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.offsets.capacity() * size_of::<usize>()
    }

    /// Appends rows of the given lengths, zeroed, and returns the index of the first. Each new entry of `offsets` holds the *start* of its
    /// row: encoders move it to the row's end while they write, column after column.
    fn reserve_rows(&mut self, lengths: impl Iterator<Item = usize>) -> usize {
        let first = self.len();
        let mut start = self.bytes.len();
        self.offsets.extend(lengths.map(|length| {
            start += length;
            start - length
        }));
        self.bytes.resize(start, 0);
        first
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for EncodedRows {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        let mut encoded = Self::new();
        rows.into_iter().for_each(|row| encoded.push(row.as_ref()));
        encoded
    }
}
