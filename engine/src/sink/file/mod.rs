//! Files in a folder as a sink, exactly once.
//!
//! A transaction writes its rows into data files (`<epoch>-<number>.<format>`, the epoch with twenty digits), makes them durable, and then puts a
//! *manifest*, `_manifest/<epoch>.json`, which names them and the epoch reached. The manifest is created, never overwritten: with it the
//! transaction is committed. A reader that wants each row once reads the files that manifests name.
//!
//! A crash leaves at most data files of an epoch above the newest manifest's: they are removed when the sink starts, before it goes on from the epoch
//! reached. Folders and files that begin with `_` or `.` are no data, also to our own file source, which does not see data files before they are
//! committed either.
//!
//! | option | meaning |
//! |---|---|
//! | `path` | folder, or `file://` or `s3://` URL of one; created if it does not exist |
//! | `s3.endpoint`, `s3.region`, ... | as in file sources |
//! | `format` | `csv`, `json` (one object per line) or `parquet` |
//! | `header`, `delimiter`, `quote`, `null` | CSV, as in file sources |

mod manifest;
mod target;
mod writer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use millpond_storage::{collection::Delta, epoch::Epoch, foreign_files::ForeignFiles};

use self::{
    manifest::{DataFile, Manifest},
    target::Target,
    writer::DataWriter,
};
use super::{
    Sink, changes,
    options::{SinkChanges, SinkSpec},
};
use crate::{
    error::{EngineError, Result},
    format::text::TextColumn,
    option_list::{OptionList, parse_choice},
    source::file::{Base, FileFormat, csv_options},
};

/// A data file is ended when it has so many bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// A file sink, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSinkSpec {
    /// The folder.
    pub(crate) folder: Base,
    /// How its files are written.
    pub format: FileFormat,
}

impl FileSinkSpec {
    pub(super) fn from_options(list: &mut OptionList, schema: &SchemaRef) -> Result<Self> {
        let path = list.required("path")?;
        let format = list.required("format")?;
        let format = match parse_choice("format", &format, &[("csv", 0), ("json", 1), ("parquet", 2)])? {
            0 => FileFormat::Csv(csv_options(list, "")?),
            1 => FileFormat::Json,
            _ => FileFormat::Parquet,
        };
        check_columns(&format, schema)?;
        let settings = list.take_prefixed("s3.", "s3.<setting>");
        Ok(Self { folder: Base::parse(&path, settings)?, format })
    }
}

/// Every column must have a form in the format.
fn check_columns(format: &FileFormat, schema: &SchemaRef) -> Result<()> {
    for field in schema.fields() {
        let possible = match format {
            FileFormat::Parquet => writer::parquet_holds(field.data_type()),
            FileFormat::Csv(_) | FileFormat::Json => TextColumn::new(&arrow::array::new_empty_array(field.data_type())).is_ok(),
        };
        if !possible {
            let message = format!("column \"{}\" of type {} cannot be written in this format", field.name(), field.data_type());
            return Err(EngineError::user("0A000", message));
        }
    }
    Ok(())
}

/// Writes changes into a folder.
#[derive(Debug)]
pub struct FileSink {
    state: Option<State>,
}

/// What calls on the blocking thread work with.
#[derive(Debug)]
struct State {
    name: String,
    format: FileFormat,
    changes: SinkChanges,
    schema: SchemaRef,
    folder: Base,
    /// The folder, once it was reached.
    target: Option<Target>,
    /// The newest manifest.
    newest: Option<Manifest>,
}

impl FileSink {
    /// A sink with this specification, whose connector is `file`.
    pub fn new(spec: &SinkSpec, file: &FileSinkSpec) -> Self {
        let state = State {
            name: spec.name.clone(),
            format: file.format.clone(),
            changes: spec.changes,
            schema: spec.written_schema(),
            folder: file.folder.clone(),
            target: None,
            newest: None,
        };
        Self { state: Some(state) }
    }

    /// Runs a call on a thread that may block.
    async fn run<T: Send + 'static>(&mut self, call: impl FnOnce(&mut State) -> Result<T> + Send + 'static) -> Result<T> {
        let mut state = self.state.take().ok_or_else(|| EngineError::Internal("a file sink was used after it failed".into()))?;
        let run = move || {
            let result = call(&mut state);
            (state, result)
        };
        let (state, result) =
            tokio::task::spawn_blocking(run).await.map_err(|error| EngineError::Internal(format!("a file sink failed: {error}")))?;
        self.state = Some(state);
        result
    }
}

#[async_trait]
impl Sink for FileSink {
    async fn check(&mut self) -> Result<()> {
        self.run(State::check).await
    }

    async fn reached(&mut self) -> Result<Epoch> {
        self.run(State::reached).await
    }

    async fn write(&mut self, deltas: &[Arc<Delta>], to: Epoch) -> Result<()> {
        let deltas = deltas.to_vec();
        self.run(move |state| state.write(&deltas, to)).await
    }
}

impl State {
    /// The folder, which is there now.
    fn open_target(&mut self) -> Result<Target> {
        let target = match (self.target.take(), &self.folder) {
            (Some(target), _) => target,
            (None, Base::Local(folder)) => Target::Local(folder.clone()),
            (None, Base::S3 { bucket, path, settings }) => {
                Target::Remote(ForeignFiles::open_s3(bucket, settings)?.below(path), tokio::runtime::Handle::current())
            }
        };
        target.create()?;
        Ok(target)
    }

    /// Whether files can be written, and what is there already can be read.
    fn check(&mut self) -> Result<()> {
        let target = self.open_target()?;
        target.try_write()?;
        target.newest_manifest().map(drop)
    }

    /// The epoch of the newest manifest. What a crash left behind is removed.
    fn reached(&mut self) -> Result<Epoch> {
        let target = self.open_target()?;
        self.newest = target.newest_manifest()?;
        let reached = self.newest.as_ref().map_or(Epoch(0), |manifest| Epoch(manifest.epoch));
        target.remove_left_overs(reached)?;
        self.target = Some(target);
        Ok(reached)
    }

    fn target(&self) -> Result<&Target> {
        self.target.as_ref().ok_or_else(|| EngineError::Internal(format!("sink \"{}\" was not asked how far it got", self.name)))
    }

    fn write(&mut self, deltas: &[Arc<Delta>], to: Epoch) -> Result<()> {
        let reached = self.newest.as_ref().map_or(0, |manifest| manifest.epoch);
        // A write that is behind would leave files that the next start takes for committed ones.
        if to.0 <= reached {
            return Err(EngineError::Internal(format!("sink \"{}\" was given epoch {to} after epoch {reached}", self.name)));
        }
        let files = self.write_files(deltas, to)?;
        let manifest = Manifest { epoch: to.0, previous: reached, files };
        self.target()?.put_manifest(&manifest)?;
        // Epochs without rows leave one manifest behind, not one each.
        if let Some(previous) = self.newest.replace(manifest).filter(|previous| previous.files.is_empty()) {
            self.target()?.remove_manifest(&previous)?;
        }
        Ok(())
    }

    /// Writes the rows of `deltas` and makes them durable.
    fn write_files(&self, deltas: &[Arc<Delta>], to: Epoch) -> Result<Vec<DataFile>> {
        let mut files = Vec::new();
        let mut open: Option<DataWriter<'_>> = None;
        for delta in deltas {
            for batch in changes::batches(delta, self.changes, &self.schema)? {
                let mut writer = match open.take() {
                    Some(writer) => writer,
                    None => {
                        let name = format!("{:020}-{}.{}", to.0, files.len(), writer::ending(&self.format));
                        DataWriter::create(self.target()?, name, &self.format, &self.schema)?
                    }
                };
                writer.write(&batch)?;
                if writer.bytes() >= MAX_FILE_BYTES {
                    files.push(writer.finish()?);
                } else {
                    open = Some(writer);
                }
            }
        }
        if let Some(writer) = open {
            files.push(writer.finish()?);
        }
        if !files.is_empty() {
            self.target()?.sync()?;
        }
        Ok(files)
    }
}
