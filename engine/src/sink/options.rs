//! What a user may say about a sink: `CREATE SINK ... WITH (connector = '...', ...)` and `FORMAT PLAIN ENCODE CSV (...)`.
//!
//! Options that every sink has: `connector`; `type = 'append-only' | 'changelog'`; `force_append_only = 'true'`.
//!
//! As in RisingWave, a sink is append-only unless it says otherwise, and one whose input updates or deletes rows is refused then: either
//! `type = 'changelog'` writes every change, or `force_append_only` drops what is no insert. A changelog has two columns more, at the end: `__op`
//! (`insert` or `delete`; an update is both) and `__epoch`.

use std::{sync::Arc, time::Duration};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::file::FileSinkSpec;
use crate::{
    error::{EngineError, Result},
    option_list::{OptionList, invalid_value},
    source::{FormatClause, options::with_format},
};

/// Name of the column that says what a change is.
pub const OP_COLUMN: &str = "__op";

/// Name of the column that says in which epoch a change was.
pub const EPOCH_COLUMN: &str = "__epoch";

/// Options of `CREATE SINK`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SinkOptions {
    /// `WITH (name = 'value', ...)`.
    pub with: Vec<(String, String)>,
    /// `FORMAT ... ENCODE ... (...)`.
    pub format: Option<FormatClause>,
}

/// A sink, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkSpec {
    /// Its name, for messages.
    pub name: String,
    /// Where changes go.
    pub connector: SinkConnector,
    /// Columns of its input.
    pub schema: SchemaRef,
    /// Which changes are written.
    pub changes: SinkChanges,
    /// Time between two transactions: changes are gathered for so long, unless the input has ended.
    pub commit_interval: Duration,
}

/// Where changes go.
#[derive(Clone, Debug, PartialEq)]
pub enum SinkConnector {
    /// Nowhere.
    Blackhole,
    /// Files in a folder.
    File(FileSinkSpec),
}

/// Which changes are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkChanges {
    /// Inserts; there is nothing else.
    AppendOnly,
    /// Inserts; all else is dropped.
    InsertsOnly,
    /// All, with what they are.
    Changelog,
}

const CONNECTORS: [&str; 2] = ["file", "blackhole"];

impl SinkSpec {
    /// Checks the options of sink `name`, whose input has the columns of `schema` and never retracts a row if `append_only`.
    ///
    /// # Errors
    /// 22023 for an unknown, missing or wrong option; 0A000 for an input that retracts rows where the sink cannot say so, and for a column
    /// that the format cannot hold.
    pub fn new(name: &str, options: &SinkOptions, schema: &SchemaRef, append_only: bool) -> Result<Self> {
        let mut list = list(options)?;
        let connector = list.required("connector")?.to_ascii_lowercase();
        if !CONNECTORS.contains(&connector.as_str()) {
            return Err(invalid_value("connector", &connector, Some(format!("Available values: {}.", CONNECTORS.join(", ")))));
        }
        list.set_context(format!("connector \"{connector}\""));
        let changelog = list.choice("type", &[("append-only", false), ("changelog", true)], false)?;
        let force = list.boolean("force_append_only", false)?;
        let interval_ms: u64 = list.number("commit_interval_ms")?.unwrap_or(1000);
        let blackhole = connector == "blackhole";
        let changes = match (append_only, changelog, force) {
            (_, true, true) => {
                return Err(EngineError::user("22023", "options type = 'changelog' and force_append_only exclude each other"));
            }
            (_, true, false) => SinkChanges::Changelog,
            (true, false, _) => SinkChanges::AppendOnly,
            (false, false, true) => SinkChanges::InsertsOnly,
            (false, false, false) if blackhole => SinkChanges::Changelog,
            (false, false, false) => return Err(retracting(name)),
        };
        let connector = if blackhole {
            // What a file sink would need is accepted: a blackhole stands in for one in measurements.
            let _ = (list.take("path"), list.take("format"));
            SinkConnector::Blackhole
        } else {
            SinkConnector::File(FileSinkSpec::from_options(&mut list, &written_schema(schema, changes))?)
        };
        list.finish()?;
        Ok(Self { name: name.to_owned(), connector, schema: schema.clone(), changes, commit_interval: Duration::from_millis(interval_ms) })
    }

    /// Columns of what is written.
    pub fn written_schema(&self) -> SchemaRef {
        written_schema(&self.schema, self.changes)
    }
}

fn written_schema(schema: &SchemaRef, changes: SinkChanges) -> SchemaRef {
    if changes != SinkChanges::Changelog {
        return schema.clone();
    }
    let mut fields: Vec<Arc<Field>> = schema.fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new(OP_COLUMN, DataType::Utf8View, false)));
    fields.push(Arc::new(Field::new(EPOCH_COLUMN, DataType::Int64, false)));
    Arc::new(Schema::new(fields))
}

fn list(options: &SinkOptions) -> Result<OptionList> {
    OptionList::new("sink", &with_format(&options.with, options.format.as_ref())?)
}

fn retracting(name: &str) -> EngineError {
    EngineError::User {
        sqlstate: "0A000",
        message: format!("sink \"{name}\" is append-only, but its input updates or deletes rows"),
        hint: Some("Set type = 'changelog' to write every change, or force_append_only = 'true' to drop updates and deletes.".into()),
    }
}
