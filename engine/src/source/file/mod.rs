//! Files as a source: CSV, JSON lines and Parquet, one file, a folder or a pattern. A split is one file.
//!
//! Which columns are wanted decides what is decoded. The values of the others are only checked: whether a row is bad does not depend on who
//! reads it.
//!
//! In mode `watch` new files are found by later discoveries, and a text file is read on as it grows; a last line without line end is not
//! yet a row. A Parquet file does not grow, and neither does a file in an object store. In mode `bounded` a file ends where it ended when it was discovered.
//!
//! Of a folder that a file sink writes, only committed files are seen.

mod ahead;
mod committed;
mod glob;
mod input;
mod location;
mod open_text;
mod options;
mod parquet;
mod place;
mod replay;
mod text;

#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use arrow::{
    array::{Array, AsArray},
    datatypes::{SchemaRef, TimestampMicrosecondType},
};
use async_trait::async_trait;
use millpond_storage::env::Clock;

use self::{
    ahead::{AheadReader, Block, BlockReader},
    open_text::{TextFile, TextFormat},
    parquet::ParquetReader,
    place::{Found, Place},
    replay::Replay,
};
pub(crate) use self::{
    committed::{MANIFEST_FOLDER, data_epoch, manifest_epoch},
    input::file_error,
    location::Base,
    options::csv_options,
};
pub use self::{
    location::Location,
    options::{FileFormat, FileSpec},
    replay::ReplaySpec,
};
use super::{Discovery, Offset, Source, Split, SplitReader};
use crate::error::{EngineError, Result};

/// A file source.
#[derive(Debug)]
pub struct FileSource {
    spec: FileSpec,
    place: Place,
    schema: SchemaRef,
    clock: Clock,
    /// Event time at which the replay starts, once it is known.
    replay_from_us: OnceLock<i64>,
}

impl FileSource {
    /// Opens the source: what it names must exist, and the first file must have the columns of `schema`.
    ///
    /// # Errors
    /// 58P01 for a file that does not exist, 42703 for a column that its header or footer does not have.
    pub async fn open(spec: FileSpec, schema: SchemaRef, clock: Clock) -> Result<Self> {
        let place = Place::new(spec.location.clone())?;
        Self::open_at(place, spec, schema, clock).await
    }

    /// The same with files that the caller can reach.
    async fn open_at(place: Place, spec: FileSpec, schema: SchemaRef, clock: Clock) -> Result<Self> {
        let source = Self { spec, place, schema, clock, replay_from_us: OnceLock::new() };
        let found = source.place.list().await?;
        let Some(first) = found.first() else {
            if source.spec.watch {
                return Ok(source);
            }
            return Err(file_error("open", &source.place.shown(), &std::io::ErrorKind::NotFound.into()));
        };
        let split = source.split(first);
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        let mut blocks = source.blocks(&split, 0, &all);
        let wants_time = source.spec.replay.as_ref().is_some_and(|replay| replay.from_us.is_none());
        let column = source.spec.replay.as_ref().map_or(0, |replay| replay.column);
        let first_time = blocking(move || {
            blocks.check()?;
            if wants_time { first_time(&mut *blocks, column) } else { Ok(None) }
        })
        .await?;
        if let Some(time) = source.spec.replay.as_ref().and_then(|replay| replay.from_us).or(first_time) {
            let _ = source.replay_from_us.set(time);
        }
        Ok(source)
    }

    fn grows(&self) -> bool {
        self.spec.watch && self.spec.format != FileFormat::Parquet && !self.place.is_remote()
    }

    fn split(&self, file: &Found) -> Split {
        let end = match self.spec.format {
            FileFormat::Csv(_) | FileFormat::Json if !self.grows() => Some(file.length),
            FileFormat::Csv(_) | FileFormat::Json | FileFormat::Parquet => None,
        };
        Split { id: file.id.clone(), end, bounded: !self.grows() }
    }

    fn blocks(&self, split: &Split, from: Offset, columns: &[usize]) -> Box<dyn BlockReader> {
        let end = if split.bounded { split.end } else { None };
        let file = OpenLater { place: self.place.clone(), id: split.id.clone() };
        let format = match &self.spec.format {
            FileFormat::Parquet => {
                return Box::new(ParquetReader::Closed {
                    file: Box::new(file),
                    columns: self.schema.clone(),
                    wanted: columns.to_vec(),
                    from,
                });
            }
            FileFormat::Csv(format) => TextFormat::Csv(format.clone()),
            FileFormat::Json => TextFormat::Json,
        };
        Box::new(TextFile::new(file, format, self.schema.clone(), columns, from, (split.bounded, end)))
    }

    /// The replay, and the columns to decode for it.
    fn replay(&self, columns: &mut Vec<usize>) -> Option<Replay> {
        let spec = self.spec.replay.as_ref()?;
        let from_us = *self.replay_from_us.get()?;
        let column = columns.iter().position(|column| *column == spec.column).unwrap_or_else(|| {
            columns.push(spec.column);
            columns.len() - 1
        });
        Some(Replay { column, from_us, start_us: spec.start_us, speed: spec.speed, clock: self.clock.clone() })
    }
}

#[async_trait]
impl Source for FileSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn paced(&self) -> bool {
        self.spec.replay.is_some()
    }

    async fn discover(&self) -> Result<Discovery> {
        let found = self.place.list().await?;
        Ok(Discovery { splits: found.iter().map(|file| self.split(file)).collect(), complete: !self.spec.watch })
    }

    async fn open(&self, split: &Split, from: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let mut columns = projection.to_vec();
        let replay = self.replay(&mut columns);
        let blocks = self.blocks(split, from, &columns);
        Ok(Box::new(AheadReader::new(self.place.full_name(&split.id), blocks, from, projection.len(), replay)))
    }

    async fn row_at(&self, split: &Split, offset: Offset) -> String {
        let name = self.place.full_name(&split.id);
        if self.spec.format == FileFormat::Parquet {
            return format!("\"{name}\", row {offset}");
        }
        let file = OpenLater { place: self.place.clone(), id: split.id.clone() };
        match blocking(move || line_before(&file.open()?, offset)).await {
            Ok(Some(line)) => format!("\"{name}\", line {line}"),
            // The row is known all the same.
            Ok(None) | Err(_) => format!("\"{name}\", before byte {offset}"),
        }
    }
}

/// The columns of the first file, which must be Parquet.
pub(super) async fn infer_schema(spec: FileSpec) -> Result<SchemaRef> {
    if spec.format != FileFormat::Parquet {
        let format = if spec.format == FileFormat::Json { "json" } else { "csv" };
        return Err(super::options::columns_missing(format));
    }
    let place = Place::new(spec.location)?;
    let found = place.list().await?;
    let Some(first) = found.into_iter().next() else {
        return Err(file_error("open", &place.shown(), &std::io::ErrorKind::NotFound.into()));
    };
    blocking(move || {
        let file = place.open(&first.id)?;
        crate::format::parquet::file_schema(file.name(), &file)
    })
    .await
}

/// Bytes of a file in which the number of a line is counted.
const COUNTED_BYTES: Offset = 256 << 20;

/// The number of the line that ends at a byte; `None` where counting would take long.
fn line_before(file: &input::InputFile, offset: Offset) -> Result<Option<usize>> {
    if offset > COUNTED_BYTES {
        return Ok(None);
    }
    let (mut at, mut line) = (0, 1);
    // The line's own end does not count.
    let end = offset.saturating_sub(1);
    let mut piece = Vec::new();
    while at < end {
        piece.clear();
        let read = file.read_at(at, usize::try_from(end - at).unwrap_or(COUNTED_PIECE).min(COUNTED_PIECE), &mut piece)?;
        if read == 0 {
            return Ok(None);
        }
        line += memchr::memchr_iter(b'\n', &piece).count();
        at += read as Offset;
    }
    Ok(Some(line))
}

/// Bytes that are read at once for that.
const COUNTED_PIECE: usize = 1 << 20;

/// A file that is opened by its first read, which is on a thread that may block.
struct OpenLater {
    place: Place,
    id: String,
}

impl OpenLater {
    fn open(&self) -> Result<input::InputFile> {
        self.place.open(&self.id)
    }
}

/// The first event time of a file.
fn first_time(blocks: &mut dyn BlockReader, column: usize) -> Result<Option<i64>> {
    while let Block::Rows(rows) = blocks.next()? {
        let times = rows.batch.column(column).as_primitive::<TimestampMicrosecondType>();
        if let Some(time) = (0..times.len()).find(|row| times.is_valid(*row)).map(|row| times.value(row)) {
            return Ok(Some(time));
        }
    }
    Ok(None)
}

/// Runs a call that may block on the disk.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) => Err(EngineError::Internal(format!("a file reader failed: {error}"))),
    }
}
