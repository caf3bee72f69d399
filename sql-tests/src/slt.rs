//! A sqllogictest database over the wire, in the simple or the extended protocol.

use sqllogictest::{DB, DBOutput, DefaultColumnType};

use crate::message::{bind, execute, frame, parse, query};
use crate::wire_client::{Answer, ClientError, WireClient};

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// One Query message.
    Simple,
    /// Parse, Bind, Execute, Sync.
    Extended,
}

/// One session that runs a file's records.
pub struct SltDatabase {
    client: WireClient,
    protocol: Protocol,
}

impl SltDatabase {
    /// Over a session that is open.
    pub fn new(client: WireClient, protocol: Protocol) -> Self {
        Self { client, protocol }
    }
}

impl DB for SltDatabase {
    type Error = ClientError;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, ClientError> {
        let messages = match self.protocol {
            Protocol::Simple => query(sql),
            Protocol::Extended => [parse("", sql, &[]), bind("", "", &[], false, false), execute("", 0), frame(b'S', &[])].concat(),
        };
        self.client.send(&messages)?;
        let answer = self.client.until_ready()?;
        Ok(output(answer))
    }

    fn engine_name(&self) -> &str {
        "millpond"
    }

    fn error_sql_state(error: &ClientError) -> Option<String> {
        Some(error.sqlstate().to_string())
    }
}

fn output(answer: Answer) -> DBOutput<DefaultColumnType> {
    let tag = answer.tags.last().cloned().unwrap_or_default();
    let count = tag.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0);
    let is_query = !answer.rows.is_empty() || ["SELECT", "SHOW", "EXPLAIN", "FETCH"].iter().any(|word| tag.starts_with(word));
    if !is_query {
        return DBOutput::StatementComplete(count);
    }
    let show = |value: Option<String>| match value {
        None => "NULL".to_string(),
        Some(text) if text.is_empty() => "(empty)".to_string(),
        Some(text) => text,
    };
    let rows: Vec<Vec<String>> = answer.rows.into_iter().map(|row| row.into_iter().map(show).collect()).collect();
    let types = vec![DefaultColumnType::Any; rows.first().map_or(0, Vec::len)];
    DBOutput::Rows { types, rows }
}
