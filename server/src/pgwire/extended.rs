//! The extended protocol: prepared statements, portals, and the skipping of messages between an error and the next Sync.

use std::sync::Arc;

use datafusion::scalar::ScalarValue;

use super::attend::Failure;
use super::bind;
use super::connection::{Connection, MAX_PORTALS};
use super::copy_in::copy_in;
use super::copy_out::copy_out;
use super::encode::Formats;
use super::message::Bind;
use super::rows::{Portion, RowsInFlight};
use crate::answer::{Answer, Column};
use crate::error::SqlError;
use crate::session::Prepared;

/// A prepared statement with its parameters, and its rows once it has been executed.
pub(super) struct Portal {
    prepared: Arc<Prepared>,
    formats: Formats,
    state: PortalState,
}

enum PortalState {
    /// Waits for its first Execute.
    Bound(Vec<Option<ScalarValue>>),
    /// Some rows have been asked for, perhaps all.
    Open(Box<RowsInFlight>),
    /// Has been run, and has no rows.
    Ended,
}

impl Connection {
    /// Parse.
    pub(super) async fn parse(&mut self, name: String, sql: &str, types: &[i32]) -> Result<(), Failure> {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            self.session.prepared.check_free(&name)?;
        }
        let given: Vec<Option<i32>> = types.iter().map(|oid| (*oid != 0).then_some(*oid)).collect();
        let prepared = Arc::new(self.line.attend(self.session.prepare(sql, &given)).await??);
        if name.is_empty() {
            self.unnamed = Some(prepared);
        } else {
            self.session.prepared.insert(name, prepared, false)?;
        }
        self.line.outbox.parse_complete();
        Ok(())
    }

    fn statement(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        if name.is_empty() {
            return self.unnamed.clone().ok_or_else(|| SqlError::new("26000", "unnamed prepared statement does not exist"));
        }
        self.session.prepared.get(name).cloned()
    }

    /// Bind.
    pub(super) fn bind(&mut self, message: Bind) -> Result<(), Failure> {
        let prepared = self.statement(&message.statement)?;
        if !message.portal.is_empty() && self.portals.contains_key(&message.portal) {
            return Err(SqlError::new("42P03", format!("cursor \"{}\" already exists", message.portal)).into());
        }
        if self.portals.len() >= MAX_PORTALS {
            return Err(too_many_portals().into());
        }
        let parameters = if message.parameters.is_empty() && prepared.parameter_types.is_empty() {
            Vec::new()
        } else {
            bind::parameters(&message, &prepared, &self.session.text_settings())?
        };
        let formats = bind::result_formats(&message, &prepared)?;
        self.portals.insert(message.portal, Portal { prepared, formats, state: PortalState::Bound(parameters) });
        self.line.outbox.bind_complete();
        Ok(())
    }

    /// Describe of a statement: its parameters, and its columns in text format, since no format has been chosen yet.
    pub(super) fn describe_statement(&mut self, name: &str) -> Result<(), Failure> {
        let prepared = self.statement(name)?;
        self.line.outbox.parameter_description(prepared.parameter_types.iter().map(|wanted| wanted.oid as u32).collect());
        match &prepared.columns {
            Some(columns) => self.line.outbox.row_description(columns, |_| false),
            None => self.line.outbox.no_data(),
        }
        Ok(())
    }

    /// Describe of a portal.
    pub(super) fn describe_portal(&mut self, name: &str) -> Result<(), Failure> {
        let portal = self.portals.get(name).ok_or_else(|| no_portal(name))?;
        match &portal.prepared.columns {
            Some(columns) => self.line.outbox.row_description(columns, |at| portal.formats.is_binary(at)),
            None => self.line.outbox.no_data(),
        }
        Ok(())
    }

    /// Execute: the first time the statement is run, later its rows go on. 0 rows asked for are all.
    pub(super) async fn execute(&mut self, name: String, max_rows: usize) -> Result<(), Failure> {
        // Out of the map, so that an error leaves no half-run portal behind.
        let mut portal = self.portals.remove(&name).ok_or_else(|| no_portal(&name))?;
        let limit = (max_rows > 0).then_some(max_rows);
        match std::mem::replace(&mut portal.state, PortalState::Ended) {
            PortalState::Bound(parameters) => {
                let answer = self.line.attend(self.session.execute_prepared(&portal.prepared, parameters)).await??;
                let described = portal.prepared.columns.as_deref();
                portal.state = self.answer_extended(answer, described, portal.formats.clone(), limit).await?;
            }
            PortalState::Open(rows) => portal.state = self.send_rows(rows, limit).await?,
            PortalState::Ended => return Err(SqlError::new("55000", format!("portal \"{name}\" cannot be run")).into()),
        }
        self.portals.insert(name, portal);
        self.after_statement();
        Ok(())
    }

    async fn answer_extended(
        &mut self,
        answer: Answer,
        described: Option<&[Column]>,
        formats: Formats,
        limit: Option<usize>,
    ) -> Result<PortalState, Failure> {
        match answer {
            Answer::Empty => self.line.outbox.empty_query(),
            Answer::Done { tag } => self.line.outbox.complete(tag),
            Answer::Rows { columns, stream, tag } => {
                // What was described must still hold: the client decodes by it.
                if described.is_some_and(|described| !same_types(described, &columns)) {
                    return Err(SqlError::new("0A000", "cached plan must not change result type").into());
                }
                let rows = Box::new(RowsInFlight::new(columns, stream, tag, formats));
                return self.send_rows(rows, limit).await;
            }
            Answer::CopyIn { columns, format, sink } => copy_in(&mut self.line, &columns, &format, sink).await?,
            Answer::CopyOut { columns, format, stream } => {
                let settings = self.session.text_settings();
                copy_out(&mut self.line, &columns, &format, stream, &settings).await?;
            }
        }
        Ok(PortalState::Ended)
    }

    async fn send_rows(&mut self, mut rows: Box<RowsInFlight>, limit: Option<usize>) -> Result<PortalState, Failure> {
        let settings = self.session.text_settings();
        match rows.send(&mut self.line, &settings, limit).await? {
            Portion::Suspended => self.line.outbox.portal_suspended(),
            Portion::End { rows: count } => self.line.outbox.complete(rows.tag(count)),
        }
        Ok(PortalState::Open(rows))
    }

    /// Close: what is not there is no error.
    pub(super) fn close_statement(&mut self, name: &str) {
        if name.is_empty() {
            self.unnamed = None;
        } else {
            // Nothing of that name is as good as closed.
            let _ = self.session.prepared.remove(name);
        }
        self.line.outbox.close_complete();
    }

    /// Close of a portal.
    pub(super) fn close_portal(&mut self, name: &str) {
        self.portals.remove(name);
        self.line.outbox.close_complete();
    }

    /// Sync: the implicit transaction ends, and with it its portals.
    pub(super) async fn sync(&mut self) -> Result<(), Failure> {
        self.skipping = false;
        if let Err(error) = self.line.attend(self.session.sync()).await? {
            self.fail(&error)?;
        }
        self.ready().await
    }
}

fn same_types(described: &[Column], came: &[Column]) -> bool {
    described.len() == came.len() && described.iter().zip(came).all(|(a, b)| a.type_oid == b.type_oid)
}

fn no_portal(name: &str) -> SqlError {
    SqlError::new("34000", format!("portal \"{name}\" does not exist"))
}

fn too_many_portals() -> SqlError {
    SqlError::new("53400", "too many portals in this session").with_hint("Close what is no longer used.")
}
