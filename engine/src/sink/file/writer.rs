//! Writes one data file.

use std::io::Write;

use arrow::{
    datatypes::{DataType, SchemaRef},
    record_batch::RecordBatch,
};
use datafusion::parquet::{
    arrow::ArrowWriter,
    basic::{Compression, ZstdLevel},
    errors::ParquetError,
    file::properties::WriterProperties,
};

use super::{
    manifest::DataFile,
    target::{DataOutput, Target},
};
use crate::{
    error::{EngineError, Result},
    format::{csv_write, json_write},
    source::file::{FileFormat, file_error},
};

/// A data file that is being written.
pub(super) struct DataWriter<'a> {
    target: &'a Target,
    name: String,
    rows: u64,
    bytes: u64,
    kind: Kind,
}

enum Kind {
    Text { output: DataOutput, format: FileFormat },
    Parquet(Box<ArrowWriter<DataOutput>>),
}

/// How the names of data files end.
pub(super) fn ending(format: &FileFormat) -> &'static str {
    match format {
        FileFormat::Csv(_) => "csv",
        FileFormat::Json => "json",
        FileFormat::Parquet => "parquet",
    }
}

/// Whether Parquet has a form for a type.
pub(super) fn parquet_holds(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) => false,
        DataType::List(item) => parquet_holds(item.data_type()),
        _ => true,
    }
}

impl<'a> DataWriter<'a> {
    /// Creates data file `name`.
    pub(super) fn create(target: &'a Target, name: String, format: &FileFormat, schema: &SchemaRef) -> Result<Self> {
        let output = target.create_data(&name)?;
        let mut writer = Self { target, name, rows: 0, bytes: 0, kind: Kind::Text { output, format: format.clone() } };
        match format {
            FileFormat::Parquet => {
                let Kind::Text { output, .. } = writer.kind else { return Err(EngineError::Internal("a data file has no output".into())) };
                let failed = |error: ParquetError| parquet_error(&target.full_name(&writer.name), &error);
                let properties =
                    WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(1).map_err(failed)?)).build();
                let parquet = ArrowWriter::try_new(output, schema.clone(), Some(properties)).map_err(failed)?;
                writer.kind = Kind::Parquet(Box::new(parquet));
            }
            FileFormat::Csv(csv) if csv.header => {
                let mut header = String::new();
                csv_write::write_header(csv, schema, &mut header);
                writer.write_text(&header)?;
            }
            FileFormat::Csv(_) | FileFormat::Json => {}
        }
        Ok(writer)
    }

    fn write_text(&mut self, text: &str) -> Result<()> {
        let Kind::Text { output, .. } = &mut self.kind else { return Err(EngineError::Internal("text for a Parquet file".into())) };
        output.write_all(text.as_bytes()).map_err(|error| file_error("write", &self.target.full_name(&self.name), &error))?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Appends rows.
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let mut text = String::new();
        match &mut self.kind {
            Kind::Parquet(writer) => {
                writer.write(batch).map_err(|error| parquet_error(&self.target.full_name(&self.name), &error))?;
                self.bytes = (writer.bytes_written() + writer.in_progress_size()) as u64;
            }
            Kind::Text { format: FileFormat::Csv(csv), .. } => csv_write::write_rows(csv, batch, &mut text)?,
            Kind::Text { .. } => json_write::write_rows(batch, &mut text)?,
        }
        self.rows += batch.num_rows() as u64;
        if text.is_empty() { Ok(()) } else { self.write_text(&text) }
    }

    /// Bytes written so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Ends the file and makes its contents durable.
    pub(super) fn finish(self) -> Result<DataFile> {
        let output = match self.kind {
            Kind::Text { output, .. } => output,
            Kind::Parquet(writer) => writer.into_inner().map_err(|error| parquet_error(&self.target.full_name(&self.name), &error))?,
        };
        let bytes = self.target.finish_data(&self.name, output)?;
        Ok(DataFile { name: self.name, rows: self.rows, bytes })
    }
}

fn parquet_error(file: &str, error: &ParquetError) -> EngineError {
    EngineError::user("58030", format!("could not write file \"{file}\": {error}"))
}
