//! What a user may say about a source: `WITH (connector = '...', ...)` and `FORMAT PLAIN ENCODE CSV (...)`, checked and turned into a
//! [`SourceSpec`].
//!
//! Options that every source has: `connector`; `late_rows = 'divert' | 'keep'`; `bad_rows = 'divert' | 'fail'`. The rest belongs to the
//! connector ([`super::file`], [`super::nexmark`], [`super::datagen`]).

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};

use super::{datagen::DatagenSpec, file::FileSpec, nexmark::NexmarkSpec};
use crate::{
    error::{EngineError, Result},
    format::timestamp::{self, TimestampParser},
    option_list::{OptionList, invalid_value},
};

/// Options of `CREATE SOURCE`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// `WITH (name = 'value', ...)`.
    pub with: Vec<(String, String)>,
    /// `FORMAT ... ENCODE ... (...)`.
    pub format: Option<FormatClause>,
}

/// `FORMAT format ENCODE encode (name = 'value', ...)`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatClause {
    /// `PLAIN`.
    pub format: String,
    /// `CSV`, `JSON`, `PARQUET` or `NATIVE`.
    pub encode: String,
    /// Options in parentheses.
    pub options: Vec<(String, String)>,
}

/// The options of both clauses in one list, the encoding as option `format`. Sources and sinks are written alike.
///
/// # Errors
/// 0A000 for another format than PLAIN.
pub(crate) fn with_format(with: &[(String, String)], format: Option<&FormatClause>) -> Result<Vec<(String, String)>> {
    let mut all = with.to_vec();
    if let Some(clause) = format {
        if !clause.format.eq_ignore_ascii_case("plain") {
            return Err(EngineError::User {
                sqlstate: "0A000",
                message: format!("FORMAT {} is not supported", clause.format.to_ascii_uppercase()),
                hint: Some("Use FORMAT PLAIN.".into()),
            });
        }
        all.push(("format".into(), clause.encode.clone()));
        all.extend(clause.options.iter().cloned());
    }
    Ok(all)
}

/// A source, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// Its name, for messages.
    pub name: String,
    /// Where rows come from.
    pub connector: ConnectorSpec,
    /// Its columns.
    pub schema: SchemaRef,
    /// Event time.
    pub watermark: Option<WatermarkSpec>,
    /// What happens to rows whose event time is below the watermark.
    pub late_rows: LateRows,
    /// What happens to rows that cannot be decoded.
    pub bad_rows: BadRows,
}

/// Where rows come from.
#[derive(Clone, Debug, PartialEq)]
pub enum ConnectorSpec {
    /// Files in CSV, JSON lines or Parquet.
    File(FileSpec),
    /// The Nexmark auction site.
    Nexmark(NexmarkSpec),
    /// Made-up rows.
    Datagen(DatagenSpec),
}

/// `WATERMARK FOR column AS column - delay`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkSpec {
    /// Column of the source's schema.
    pub column: usize,
    /// Microseconds by which the watermark stays behind the greatest event time seen.
    pub delay: i64,
}

/// What happens to late rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LateRows {
    /// They go to the relation of late rows.
    #[default]
    Divert,
    /// They are rows like any other.
    Keep,
}

/// What happens to rows that cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BadRows {
    /// They go to the relation of bad rows.
    #[default]
    Divert,
    /// The job that reads one fails.
    Fail,
}

const CONNECTORS: [&str; 3] = ["file", "nexmark", "datagen"];

impl SourceOptions {
    /// The same options with what must be fixed when the source is created: the instant from which rows are paced. Kept in the catalog, so
    /// that a source gives the same rows after a restart.
    #[must_use]
    pub fn resolved(&self, now_us: i64) -> Self {
        let get = |name: &str| self.with.iter().find(|(option, _)| option.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
        let name = match get("connector").map(str::to_ascii_lowercase).as_deref() {
            Some("nexmark" | "datagen") => "start_time",
            Some("file") if get("replay_speed").is_some() => "replay_start",
            _ => return self.clone(),
        };
        let mut resolved = self.clone();
        if get(name).is_none() {
            let mut instant = String::new();
            timestamp::write_timestamp(&mut instant, now_us, true);
            resolved.with.push((name.to_owned(), instant));
        }
        resolved
    }

    /// All options in one list, the format as option `format`, and the connector.
    pub(super) fn list(&self) -> Result<(OptionList, String)> {
        let mut options = OptionList::new("source", &with_format(&self.with, self.format.as_ref())?)?;
        let connector = options.required("connector")?.to_ascii_lowercase();
        if !CONNECTORS.contains(&connector.as_str()) {
            return Err(invalid_value("connector", &connector, Some(format!("Available values: {}.", CONNECTORS.join(", ")))));
        }
        options.set_context(format!("connector \"{connector}\""));
        Ok((options, connector))
    }
}

impl SourceSpec {
    /// Checks the options of source `name`. `declared` are the columns of the statement, or those inferred by
    /// [`super::infer_schema`]; only `nexmark` can do without.
    ///
    /// # Errors
    /// 22023 for an unknown, missing or wrong option, 42601 for one given twice.
    pub fn new(name: &str, options: &SourceOptions, declared: Option<SchemaRef>, watermark: Option<WatermarkSpec>) -> Result<Self> {
        let (mut list, connector) = options.list()?;
        let late_rows = list.choice("late_rows", &[("divert", LateRows::Divert), ("keep", LateRows::Keep)], LateRows::Divert)?;
        let bad_rows = list.choice("bad_rows", &[("divert", BadRows::Divert), ("fail", BadRows::Fail)], BadRows::Divert)?;
        let must_declare = || columns_missing(&connector);
        let (connector, schema) = match connector.as_str() {
            "nexmark" => {
                let spec = NexmarkSpec::from_options(&mut list)?;
                let schema = match declared {
                    Some(declared) => spec.check_columns(&declared)?,
                    None => spec.schema(),
                };
                (ConnectorSpec::Nexmark(spec), schema)
            }
            "datagen" => {
                let schema = declared.ok_or_else(must_declare)?;
                (ConnectorSpec::Datagen(DatagenSpec::from_options(&mut list, &schema)?), schema)
            }
            _ => {
                let schema = declared.ok_or_else(must_declare)?;
                let spec = FileSpec::from_options(&mut list, &schema, watermark.map(|watermark| watermark.column))?;
                (ConnectorSpec::File(spec), schema)
            }
        };
        list.finish()?;
        if let Some(watermark) = watermark {
            check_watermark(&schema, watermark)?;
        }
        Ok(Self { name: name.to_owned(), connector, schema, watermark, late_rows, bad_rows })
    }
}

/// The error for a source that needs declared columns.
pub(super) fn columns_missing(what: &str) -> EngineError {
    EngineError::User {
        sqlstate: "42601",
        message: format!("the columns of a source of \"{what}\" must be declared"),
        hint: Some(
            "Write CREATE SOURCE name (column type, ...) WITH (...). Only Parquet files and nexmark bring their columns along.".into(),
        ),
    }
}

fn check_watermark(schema: &SchemaRef, watermark: WatermarkSpec) -> Result<()> {
    let field = schema.fields().get(watermark.column).ok_or_else(|| EngineError::Internal("a watermark's column does not exist".into()))?;
    if matches!(field.data_type(), DataType::Timestamp(TimeUnit::Microsecond, _)) {
        return Ok(());
    }
    Err(EngineError::user("42804", format!("watermark column \"{}\" must be of type timestamp or timestamp with time zone", field.name())))
}

/// An option that holds an instant, in microseconds since 1970 UTC.
pub(super) fn instant_option(list: &mut OptionList, name: &'static str) -> Result<Option<i64>> {
    let Some(text) = list.take(name) else { return Ok(None) };
    TimestampParser::default()
        .parse(text.as_bytes(), true)
        .map(Some)
        .ok_or_else(|| invalid_value(name, &text, Some("Write a time as '2026-01-31 23:59:59'.".into())))
}

/// Checks that `declared` columns are among `available`, by name and type, and gives them as declared.
pub(super) fn subset(declared: &SchemaRef, available: &SchemaRef, what: &str) -> Result<SchemaRef> {
    for field in declared.fields() {
        let Some((_, found)) = available.column_with_name(field.name()) else {
            let names: Vec<&str> = available.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(EngineError::User {
                sqlstate: "42703",
                message: format!("column \"{}\" does not exist in {what}", field.name()),
                hint: Some(format!("Its columns are: {}.", names.join(", "))),
            });
        };
        if found.data_type() != field.data_type() {
            return Err(EngineError::User {
                sqlstate: "42804",
                message: format!("column \"{}\" of {what} has another type", field.name()),
                hint: Some(format!("It is {}, not {}.", found.data_type(), field.data_type())),
            });
        }
    }
    Ok(Arc::clone(declared))
}
