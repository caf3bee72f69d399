//! SET, RESET, SHOW of settings, DISCARD.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringViewArray};
use arrow::datatypes::{DataType, Field, Schema};
use futures::StreamExt;
use millpond_planner::{
    parse::statement::{DiscardTarget, ResetTarget, Set, SetScope},
    types::SqlType,
};

use crate::{
    answer::{Answer, Column, RowsTag},
    error::{Notice, Result, SqlError},
    session::{Session, transaction::Phase},
};

/// SET in all its forms.
pub(crate) fn set(session: &mut Session, set: &Set) -> Result<Answer> {
    match set {
        Set::Setting { scope, name, value } => set_setting(session, *scope, name, value.as_deref())?,
        Set::Transaction(modes) => {
            if session.transaction.phase() == Phase::Idle {
                session.notify(Notice::warning("25P01", "SET TRANSACTION can only be used in transaction blocks"));
            } else {
                session.transaction.set_modes(*modes)?;
            }
        }
        Set::SessionTransaction(modes) => {
            if let Some(isolation) = modes.isolation {
                session.variables.set("default_transaction_isolation", isolation.name(), false)?;
            }
            if let Some(read_only) = modes.read_only {
                session.variables.set("default_transaction_read_only", if read_only { "on" } else { "off" }, false)?;
            }
        }
        Set::Constraints => {}
    }
    Ok(Answer::done("SET"))
}

fn set_setting(session: &mut Session, scope: SetScope, name: &str, value: Option<&str>) -> Result<()> {
    let local = scope == SetScope::Local;
    if local && session.transaction.phase() == Phase::Idle {
        session.notify(Notice::warning("25P01", "SET LOCAL can only be used in transaction blocks"));
        return Ok(());
    }
    match (name, value) {
        ("transaction_isolation", Some(value)) => {
            let isolation = crate::session::transaction::level(&value.to_ascii_lowercase())
                .ok_or_else(|| SqlError::new("22023", format!("invalid value for parameter \"transaction_isolation\": \"{value}\"")))?;
            session
                .transaction
                .set_modes(millpond_planner::parse::statement::TransactionModes { isolation: Some(isolation), ..Default::default() })
        }
        ("transaction_read_only", Some(value)) => {
            let read_only = crate::session::settings::parse_bool(value)
                .ok_or_else(|| SqlError::new("22023", "parameter \"transaction_read_only\" requires a Boolean value"))?;
            session
                .transaction
                .set_modes(millpond_planner::parse::statement::TransactionModes { read_only: Some(read_only), ..Default::default() })
        }
        ("session_authorization", value) => match value {
            Some(user) if user != session.info().user => Err(SqlError::new("42501", "permission denied to set session authorization")),
            Some(_) | None => Ok(()),
        },
        (name, Some(value)) => session.variables.set(name, value, local),
        (name, None) => session.variables.reset(name, local),
    }
}

/// RESET.
pub(crate) fn reset(session: &mut Session, target: &ResetTarget) -> Result<Answer> {
    match target {
        ResetTarget::All => session.variables.reset_all(),
        ResetTarget::Setting(name) => session.variables.reset(name, false)?,
    }
    Ok(Answer::done("RESET"))
}

/// DISCARD.
pub(crate) fn discard(session: &mut Session, target: DiscardTarget) -> Result<Answer> {
    Ok(Answer::done(match target {
        DiscardTarget::All => {
            if session.transaction.phase() != Phase::Idle {
                return Err(SqlError::new("25001", "DISCARD ALL cannot run inside a transaction block"));
            }
            session.variables.reset_all();
            session.cursors.clear();
            session.prepared.clear();
            "DISCARD ALL"
        }
        DiscardTarget::Plans => "DISCARD PLANS",
        DiscardTarget::Sequences => "DISCARD SEQUENCES",
        DiscardTarget::Temp => "DISCARD TEMP",
    }))
}

/// The value of a setting, with those that are the transaction's.
pub(crate) fn value(session: &Session, name: &str) -> Result<(String, String)> {
    let (shown, value) = session.variables.show(name)?;
    let in_transaction = session.transaction.phase() != Phase::Idle;
    let value = match shown.as_str() {
        "transaction_isolation" if in_transaction => session.transaction.isolation.name().to_owned(),
        "transaction_isolation" => session.variables.get("default_transaction_isolation").unwrap_or(value),
        "transaction_read_only" if in_transaction => if session.transaction.read_only { "on" } else { "off" }.to_owned(),
        "transaction_read_only" => session.variables.get("default_transaction_read_only").unwrap_or(value),
        _ => value,
    };
    Ok((shown, value))
}

/// SHOW name.
pub(crate) fn show(session: &Session, name: &str) -> Result<Answer> {
    let (shown, value) = value(session, name)?;
    text_rows(&[&shown], vec![vec![value]], RowsTag::Show)
}

/// SHOW ALL.
pub(crate) fn show_all(session: &Session) -> Result<Answer> {
    let mut rows = Vec::new();
    for (name, _, description) in session.variables.show_all() {
        rows.push(vec![name.to_owned(), value(session, name)?.1, description.to_owned()]);
    }
    text_rows(&["name", "setting", "description"], rows, RowsTag::Show)
}

/// The columns of an answer that is all text.
pub(crate) fn text_columns(names: &[&str]) -> Vec<Column> {
    let column = |name: &&str| Column {
        name: (*name).to_owned(),
        data_type: DataType::Utf8View,
        type_oid: SqlType::Text.oid(),
        type_modifier: -1,
        table_oid: 0,
        column_number: 0,
    };
    names.iter().map(column).collect()
}

/// An answer that is all text.
pub(crate) fn text_rows(names: &[&str], rows: Vec<Vec<String>>, tag: RowsTag) -> Result<Answer> {
    let fields: Vec<Field> = names.iter().map(|name| Field::new(*name, DataType::Utf8View, true)).collect();
    let arrays: Vec<ArrayRef> = (0..names.len())
        .map(|column| Arc::new(rows.iter().map(|row| row.get(column).map(String::as_str)).collect::<StringViewArray>()) as ArrayRef)
        .collect();
    let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?;
    let stream = futures::stream::once(async move { Ok(batch) }).boxed();
    Ok(Answer::Rows { columns: text_columns(names), stream, tag })
}
