//! What an unaligned checkpoint found on its way between subtasks: messages that its barrier overtook, and rows of epochs that the root had not
//! sealed.
//!
//! One object per subtask that has any:
//!
//! ```text
//! object   = "MPIF" version u32 | segments u32, segment* | unsealed u32, (epoch u64, rows)* | checksum u32 of all before
//! segment  = exchange u32 | first, end key group u16 u16 | passed u64 | generation u32 | watermarks u32, (column u32, micros i64)*
//!            | messages u32, message*
//! message  = 0 rows | 1 column u32, micros i64 | 2 epoch u64, time i64
//! rows     = a signed batch
//! ```
//!
//! all in little endian. The messages of a segment are in the order in which they were sent.

use std::ops::Range;

use futures::{FutureExt, StreamExt, TryStreamExt};

use super::{
    Checkpointer, Restored,
    manifest::{InFlightObject, NamedObject},
};
use crate::{
    encoding::cursor::Cursor,
    epoch::Epoch,
    error::{Result, StorageError},
    object::blocking,
    signed_batch::SignedBatch,
};

const MAGIC: &[u8; 4] = b"MPIF";
const VERSION: u32 = 1;
const PARALLEL_OBJECTS: usize = 4;

/// One message of a channel between two subtasks.
#[derive(Clone, Debug, PartialEq)]
pub enum SegmentMessage {
    /// Row changes.
    Rows(SignedBatch),
    /// Event time of a column, in microseconds since 1970.
    Watermark {
        /// The column.
        column: u32,
        /// Later rows are not below.
        micros: i64,
    },
    /// The end of an epoch.
    Barrier {
        /// The epoch.
        epoch: Epoch,
        /// Its clock time, in microseconds since 1970.
        time_us: i64,
    },
}

/// What was on one channel of an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// The exchange.
    pub exchange: u32,
    /// Key groups of the consumer: all rows belong to them.
    pub key_groups: Range<u16>,
    /// The last epoch whose barrier the consumer had taken from the channel.
    pub passed: Epoch,
    /// In which life of the job the channel began: one that began later goes on where earlier ones end.
    pub generation: u32,
    /// Watermarks that the consumer had taken from it: column, microseconds.
    pub watermarks: Vec<(u32, i64)>,
    /// What it had not taken, in order.
    pub messages: Vec<SegmentMessage>,
}

/// What one subtask adds to an unaligned checkpoint besides its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InFlight {
    /// Number of the subtask in the job.
    pub subtask: u32,
    /// One per channel that the barrier may have overtaken messages on.
    pub segments: Vec<Segment>,
    /// The root's output of epochs that were not sealed. An epoch ends with the first barrier that is not below it.
    pub unsealed: Vec<(Epoch, SignedBatch)>,
}

impl InFlight {
    /// Whether there is nothing to restore.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.unsealed.is_empty()
    }

    /// Rows in it.
    pub fn rows(&self) -> u64 {
        let messages = self.segments.iter().flat_map(|segment| &segment.messages);
        let rows = messages.map(|message| match message {
            SegmentMessage::Rows(rows) => rows.num_rows(),
            SegmentMessage::Watermark { .. } | SegmentMessage::Barrier { .. } => 0,
        });
        let unsealed = self.unsealed.iter().map(|(_, rows)| rows.num_rows());
        rows.chain(unsealed).sum::<usize>() as u64
    }

    /// The stored form.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut out = [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat();
        put_u32(&mut out, self.segments.len());
        for segment in &self.segments {
            segment.write(&mut out)?;
        }
        put_u32(&mut out, self.unsealed.len());
        for (epoch, rows) in &self.unsealed {
            out.extend_from_slice(&epoch.0.to_le_bytes());
            rows.write(&mut out)?;
        }
        let checksum = crc32fast::hash(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        Ok(out)
    }

    /// Reads the stored form back; `object` is named in errors.
    pub(super) fn decode(bytes: &[u8], subtask: u32, object: &str) -> Result<Self> {
        let corrupt = |detail: String| StorageError::Corrupt { file: object.to_owned(), detail };
        let (body, checksum) = bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("it is too short".into()))?;
        if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
            return Err(corrupt("its checksum does not fit".into()));
        }
        Self::read(&mut Cursor::new(body, "in-flight data"), subtask).map_err(|error| match error {
            StorageError::Corrupt { detail, .. } => corrupt(detail),
            other => other,
        })
    }

    fn read(from: &mut Cursor<'_>, subtask: u32) -> Result<Self> {
        if from.bytes(4)? != MAGIC {
            return Err(from.corrupt("it does not begin as in-flight data"));
        }
        let version = from.u32()?;
        if version != VERSION {
            return Err(from.corrupt(format!("unknown version {version}")));
        }
        let mut flight = Self { subtask, ..Self::default() };
        for _ in 0..from.u32()? {
            flight.segments.push(Segment::read(from)?);
        }
        for _ in 0..from.u32()? {
            flight.unsealed.push((Epoch(from.u64()?), SignedBatch::read(from)?));
        }
        if from.remaining() > 0 {
            return Err(from.corrupt("there are bytes behind its end"));
        }
        Ok(flight)
    }
}

impl Segment {
    fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.exchange.to_le_bytes());
        out.extend_from_slice(&self.key_groups.start.to_le_bytes());
        out.extend_from_slice(&self.key_groups.end.to_le_bytes());
        out.extend_from_slice(&self.passed.0.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        put_u32(out, self.watermarks.len());
        for (column, micros) in &self.watermarks {
            out.extend_from_slice(&column.to_le_bytes());
            out.extend_from_slice(&micros.to_le_bytes());
        }
        put_u32(out, self.messages.len());
        for message in &self.messages {
            match message {
                SegmentMessage::Rows(rows) => {
                    out.push(0);
                    rows.write(out)?;
                }
                SegmentMessage::Watermark { column, micros } => {
                    out.push(1);
                    out.extend_from_slice(&column.to_le_bytes());
                    out.extend_from_slice(&micros.to_le_bytes());
                }
                SegmentMessage::Barrier { epoch, time_us } => {
                    out.push(2);
                    out.extend_from_slice(&epoch.0.to_le_bytes());
                    out.extend_from_slice(&time_us.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self> {
        let exchange = from.u32()?;
        let key_groups = from.u16()?..from.u16()?;
        let passed = Epoch(from.u64()?);
        let generation = from.u32()?;
        let mut segment = Self { exchange, key_groups, passed, generation, watermarks: Vec::new(), messages: Vec::new() };
        for _ in 0..from.u32()? {
            segment.watermarks.push((from.u32()?, from.i64()?));
        }
        for _ in 0..from.u32()? {
            segment.messages.push(match from.u8()? {
                0 => SegmentMessage::Rows(SignedBatch::read(from)?),
                1 => SegmentMessage::Watermark { column: from.u32()?, micros: from.i64()? },
                2 => SegmentMessage::Barrier { epoch: Epoch(from.u64()?), time_us: from.i64()? },
                other => return Err(from.corrupt(format!("a message has kind {other}"))),
            });
        }
        Ok(segment)
    }
}

fn put_u32(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes());
}

impl Checkpointer {
    /// Uploads what subtasks found in flight, those that found something. It belongs to this checkpoint alone: after a failure it is garbage.
    pub(super) async fn upload_in_flight(&self, epoch: Epoch, flights: Vec<InFlight>) -> Result<Vec<InFlightObject>> {
        let uploads = flights.into_iter().filter(|flight| !flight.is_empty()).map(|flight| self.upload_flight(epoch, flight).boxed());
        let uploads: Vec<_> = uploads.collect();
        futures::stream::iter(uploads).buffered(PARALLEL_OBJECTS).try_collect().await
    }

    async fn upload_flight(&self, epoch: Epoch, flight: InFlight) -> Result<InFlightObject> {
        let (subtask, rows) = (flight.subtask, flight.rows());
        let bytes = blocking(move || flight.encode()).await?;
        let name = format!("flight/{epoch}-{subtask}.{}", self.attempt);
        let known = self.objects.put(&self.object(&name), &bytes).await?;
        Ok(InFlightObject { subtask, rows, object: NamedObject { name, known } })
    }

    /// Reads back what was in flight when the checkpoint was taken; nothing for an aligned one.
    pub async fn load_in_flight(&self, restored: &Restored) -> Result<Vec<InFlight>> {
        let loads: Vec<_> = restored.manifest.in_flight.iter().flatten().map(|flight| self.load_flight(flight).boxed()).collect();
        futures::stream::iter(loads).buffered(PARALLEL_OBJECTS).try_collect().await
    }

    async fn load_flight(&self, flight: &InFlightObject) -> Result<InFlight> {
        let name = self.object(&flight.object.name);
        let bytes = self.objects.get_known(&name, flight.object.known).await?;
        let (full_name, subtask) = (self.objects.full_name(&name), flight.subtask);
        blocking(move || InFlight::decode(&bytes, subtask, &full_name)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{array::Int64Array, record_batch::RecordBatch};

    use super::*;

    fn rows(values: &[i64], signs: Vec<i8>) -> SignedBatch {
        let column: arrow::array::ArrayRef = Arc::new(Int64Array::from(values.to_vec()));
        SignedBatch::new(RecordBatch::try_from_iter([("a", column)]).unwrap(), signs)
    }

    #[test]
    fn in_flight_data_comes_back_as_it_was_and_damage_is_found() {
        let segment = Segment {
            exchange: 3,
            key_groups: 128..256,
            passed: Epoch(41),
            generation: 3,
            watermarks: vec![(1, -5)],
            messages: vec![
                SegmentMessage::Rows(rows(&[1, 2, 3], vec![1, -1, 1])),
                SegmentMessage::Watermark { column: 1, micros: i64::MAX },
                SegmentMessage::Barrier { epoch: Epoch(42), time_us: 7 },
                SegmentMessage::Rows(rows(&[4], vec![1])),
            ],
        };
        let empty = Segment { exchange: 0, key_groups: 0..256, passed: Epoch(0), generation: 0, watermarks: vec![], messages: vec![] };
        let flight = InFlight { subtask: 65536, segments: vec![segment, empty], unsealed: vec![(Epoch(42), rows(&[9, 9], vec![1, 1]))] };
        assert_eq!(flight.rows(), 6);
        let bytes = flight.encode().unwrap();
        assert_eq!(InFlight::decode(&bytes, 65536, "f").unwrap(), flight);
        for length in 0..bytes.len() {
            let cut = InFlight::decode(&bytes[..length], 0, "f");
            assert!(matches!(cut, Err(StorageError::Corrupt { file, .. }) if file == "f"));
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(matches!(InFlight::decode(&damaged, 0, "f"), Err(StorageError::Corrupt { .. })), "byte {at}");
        }
    }
}
