//! Options of file sources.
//!
//! | option | meaning |
//! |---|---|
//! | `path` | file, folder, pattern (`/data/*.csv`), or a `file://` or `s3://` URL of one |
//! | `s3.endpoint`, `s3.region`, `s3.access_key_id`, `s3.secret_access_key`, ... | settings of the S3 client; the usual `AWS_*` environment variables stand for those that are not given |
//! | `format` | `csv`, `json` (one object per line) or `parquet`; by default as the path ends |
//! | `mode` | `bounded` (default: the files there are) or `watch` (new files and, for text, new lines are read as they come) |
//! | `header` | CSV: the first line names the columns (default false; `without_header` says the opposite) |
//! | `delimiter`, `quote`, `null` | CSV: one character, one character, text of NULL |
//! | `replay_speed` | event time passes so many times as fast as the clock |
//! | `replay_column` | its timestamp column (default: the watermark's) |
//! | `replay_from` | event time at the start (default: the first in the data) |
//! | `replay_start` | instant of the start (default: when the source is created) |

use arrow::datatypes::SchemaRef;

use super::{
    location::Location,
    replay::{ReplaySpec, is_replay_type},
};
use crate::{
    error::{EngineError, Result},
    format::{cells, csv::CsvFormat},
    option_list::{OptionList, invalid_value, parse_boolean, parse_choice},
    source::options::instant_option,
};

/// A file source, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct FileSpec {
    /// Where the files are.
    pub location: Location,
    /// How they are written.
    pub format: FileFormat,
    /// Whether more files and lines may come.
    pub watch: bool,
    /// Pacing by event time.
    pub replay: Option<ReplaySpec>,
}

/// How a file is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Comma-separated values.
    Csv(CsvFormat),
    /// One JSON object per line.
    Json,
    /// Parquet.
    Parquet,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Csv,
    Json,
    Parquet,
}

const FORMATS: [(&str, Kind); 3] = [("csv", Kind::Csv), ("json", Kind::Json), ("parquet", Kind::Parquet)];

impl Kind {
    fn endings(self) -> &'static [&'static str] {
        match self {
            Kind::Csv => &["csv", "tsv", "txt"],
            Kind::Json => &["json", "jsonl", "ndjson"],
            Kind::Parquet => &["parquet", "pq"],
        }
    }

    fn of_path(path: &str) -> Option<Self> {
        let ending = path.rsplit_once('.')?.1.to_ascii_lowercase();
        FORMATS.iter().map(|(_, kind)| *kind).find(|kind| kind.endings().contains(&ending.as_str()))
    }
}

impl FileSpec {
    /// Takes the options of a file source with the columns `schema`, of which `watermark` carries event time.
    pub(in crate::source) fn from_options(list: &mut OptionList, schema: &SchemaRef, watermark: Option<usize>) -> Result<Self> {
        let spec = Self { replay: replay_options(list, schema, watermark)?, ..Self::without_columns(list)? };
        let text = !matches!(spec.format, FileFormat::Parquet);
        if let Some(field) = schema.fields().iter().find(|field| text && !cells::is_supported(field.data_type())) {
            let message = format!("column \"{}\" has type {}, which cannot be read from text", field.name(), field.data_type());
            return Err(EngineError::user("0A000", message));
        }
        Ok(spec)
    }

    /// Takes the options that need no columns.
    pub(in crate::source) fn without_columns(list: &mut OptionList) -> Result<Self> {
        let path = list.required("path")?;
        let kind = match list.take("format") {
            Some(text) => parse_choice("format", &text, &FORMATS)?,
            None => Kind::of_path(&path).ok_or_else(|| list.missing("format"))?,
        };
        let settings = list.take_prefixed("s3.", "s3.<setting>");
        let watch = list.choice("mode", &[("bounded", false), ("watch", true)], false)?;
        let format = match kind {
            Kind::Csv => FileFormat::Csv(csv_options(list, &path)?),
            Kind::Json => FileFormat::Json,
            Kind::Parquet => FileFormat::Parquet,
        };
        Ok(Self { location: Location::parse(&path, kind.endings(), settings)?, format, watch, replay: None })
    }
}

/// Takes the options that say how CSV is written; `path` decides the delimiter if none is given.
pub(crate) fn csv_options(list: &mut OptionList, path: &str) -> Result<CsvFormat> {
    let defaults = CsvFormat::default();
    // `without_header` is RisingWave's spelling of the opposite.
    let header = match list.take("header") {
        Some(value) => parse_boolean("header", &value)?,
        None => !list.boolean("without_header", true)?,
    };
    let by_ending = if path.to_ascii_lowercase().ends_with(".tsv") { b'\t' } else { defaults.delimiter };
    let delimiter = character(list, "delimiter", by_ending)?;
    let quote = character(list, "quote", defaults.quote)?;
    if delimiter == quote {
        return Err(EngineError::user("22023", "CSV delimiter and quote must be different"));
    }
    Ok(CsvFormat { delimiter, quote, null: list.take("null").unwrap_or_default(), header })
}

fn character(list: &mut OptionList, name: &'static str, default: u8) -> Result<u8> {
    let Some(value) = list.take(name) else { return Ok(default) };
    match value.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err(invalid_value(name, &value, Some("It must be a single one-byte character.".into()))),
    }
}

fn replay_options(list: &mut OptionList, schema: &SchemaRef, watermark: Option<usize>) -> Result<Option<ReplaySpec>> {
    let speed: Option<f64> = list.number("replay_speed")?;
    let (column, from_us, start_us) =
        (list.take("replay_column"), instant_option(list, "replay_from")?, instant_option(list, "replay_start")?);
    let Some(speed) = speed else {
        let given = [("replay_column", column.is_some()), ("replay_from", from_us.is_some()), ("replay_start", start_us.is_some())];
        return match given.iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(EngineError::user("22023", format!("option \"{name}\" needs option \"replay_speed\""))),
            None => Ok(None),
        };
    };
    if !(speed.is_finite() && speed > 0.0) {
        return Err(invalid_value("replay_speed", &speed.to_string(), Some("It must be greater than zero.".into())));
    }
    let column = match column {
        Some(name) => schema.index_of(&name).map_err(|_| EngineError::user("42703", format!("column \"{name}\" does not exist")))?,
        None => watermark.ok_or_else(|| EngineError::User {
            sqlstate: "22023",
            message: "option \"replay_speed\" needs a time column".into(),
            hint: Some("Declare a WATERMARK, or set option \"replay_column\".".into()),
        })?,
    };
    if !is_replay_type(schema.field(column).data_type()) {
        return Err(EngineError::user("42804", format!("replay column \"{}\" must be of type timestamp", schema.field(column).name())));
    }
    Ok(Some(ReplaySpec { column, speed, from_us, start_us: start_us.unwrap_or(0) }))
}
