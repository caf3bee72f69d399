//! Records of the epoch log, and their bytes.

use crate::{
    encoding::cursor::{Cursor, write_bytes},
    epoch::Epoch,
    error::{Result, StorageError},
    signed_batch::SignedBatch,
};

/// Version of the records, the first byte of every frame.
pub(super) const RECORD_VERSION: u8 = 2;

/// What one [`append`](super::EpochLog::append) may at most hold, in bytes: a frame has a 32-bit length.
pub(super) const MAX_APPEND_BYTES: usize = 2 << 30;

const NAME: &str = "epoch log record";

/// One record of the epoch log.
#[derive(Clone, Debug, PartialEq)]
pub enum LogRecord {
    /// Changes of a table. They belong to `epoch`.
    Dml {
        /// The epoch that is open.
        epoch: Epoch,
        /// Id of the table.
        table: u64,
        /// The changes, in order.
        delta: Vec<SignedBatch>,
    },
    /// Ends an epoch.
    Close {
        /// The epoch.
        epoch: Epoch,
        /// Its one clock time, microseconds since 1970.
        time_us: i64,
        /// Positions of the splits that moved, or whose idleness changed.
        bindings: Vec<Binding>,
        /// Watermarks of the sources whose watermark moved.
        watermarks: Vec<SourceWatermark>,
    },
    /// A fact that is kept for ever: the last value of each key survives every cut.
    Note {
        /// What it is about.
        key: String,
        /// The fact.
        value: Vec<u8>,
    },
}

/// A source's watermark from an epoch on, which depends on the splits that were known then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceWatermark {
    /// Id of the source.
    pub source: u64,
    /// Microseconds since 1970; the maximum when the source has ended.
    pub micros: i64,
}

/// How far into a split an epoch reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Id of the source.
    pub source: u64,
    /// Name of the split.
    pub split: String,
    /// The offset behind the last row of the epoch, order-preserving (`u64` big-endian for files).
    pub end: Vec<u8>,
    /// The source said that there is no more for now.
    pub idle: bool,
}

impl LogRecord {
    /// The epoch the record belongs to.
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Dml { epoch, .. } | Self::Close { epoch, .. } => Some(*epoch),
            Self::Note { .. } => None,
        }
    }

    /// Appends the record to `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        match self {
            Self::Dml { epoch, table, delta } => {
                out.push(1);
                out.extend_from_slice(&epoch.0.to_le_bytes());
                out.extend_from_slice(&table.to_le_bytes());
                out.extend_from_slice(&(delta.len() as u32).to_le_bytes());
                delta.iter().try_for_each(|batch| batch.write(out))?;
            }
            Self::Close { epoch, time_us, bindings, watermarks } => {
                out.push(2);
                out.extend_from_slice(&epoch.0.to_le_bytes());
                out.extend_from_slice(&time_us.to_le_bytes());
                out.extend_from_slice(&(bindings.len() as u32).to_le_bytes());
                for binding in bindings {
                    out.extend_from_slice(&binding.source.to_le_bytes());
                    write_bytes(out, binding.split.as_bytes());
                    write_bytes(out, &binding.end);
                    out.push(u8::from(binding.idle));
                }
                out.extend_from_slice(&(watermarks.len() as u32).to_le_bytes());
                for watermark in watermarks {
                    out.extend_from_slice(&watermark.source.to_le_bytes());
                    out.extend_from_slice(&watermark.micros.to_le_bytes());
                }
            }
            Self::Note { key, value } => {
                out.push(3);
                write_bytes(out, key.as_bytes());
                write_bytes(out, value);
            }
        }
        if out.len() > MAX_APPEND_BYTES {
            return Err(StorageError::Internal(format!("one append to the epoch log may have {MAX_APPEND_BYTES} bytes at most")));
        }
        Ok(())
    }

    /// Reads the records of a frame.
    pub(super) fn read_frame(payload: &[u8], mut take: impl FnMut(Self)) -> Result<()> {
        let mut from = Cursor::new(payload, NAME);
        let version = from.u8()?;
        if version != RECORD_VERSION {
            return Err(from.corrupt(format!("unknown version {version}")));
        }
        while from.remaining() > 0 {
            take(Self::read(&mut from)?);
        }
        Ok(())
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self> {
        Ok(match from.u8()? {
            1 => {
                let epoch = Epoch(from.u64()?);
                let table = from.u64()?;
                let count = from.u32()?;
                let delta = (0..count).map(|_| SignedBatch::read(from)).collect::<Result<_>>()?;
                Self::Dml { epoch, table, delta }
            }
            2 => {
                let epoch = Epoch(from.u64()?);
                let time_us = from.i64()?;
                let count = from.u32()?;
                let bindings = (0..count).map(|_| read_binding(from)).collect::<Result<_>>()?;
                let count = from.u32()?;
                let watermark = |from: &mut Cursor<'_>| Ok(SourceWatermark { source: from.u64()?, micros: from.i64()? });
                let watermarks = (0..count).map(|_| watermark(from)).collect::<Result<_>>()?;
                Self::Close { epoch, time_us, bindings, watermarks }
            }
            3 => Self::Note { key: from.sized_text()?.into(), value: from.sized_bytes()?.into() },
            kind => return Err(from.corrupt(format!("unknown kind {kind}"))),
        })
    }
}

fn read_binding(from: &mut Cursor<'_>) -> Result<Binding> {
    Ok(Binding { source: from.u64()?, split: from.sized_text()?.into(), end: from.sized_bytes()?.into(), idle: from.u8()? != 0 })
}
