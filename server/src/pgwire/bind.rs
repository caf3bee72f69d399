//! Bind: the values of a prepared statement's parameters.

use datafusion::scalar::ScalarValue;
use millpond_planner::pg_text::{TextSettings, parse_text};

use super::binary_read::read_binary;
use super::encode::Formats;
use super::message::{Bind, utf8, violation};
use crate::error::SqlError;
use crate::session::Prepared;

/// Decodes the parameters of a Bind message; NULL is None.
///
/// # Errors
/// 08P01 when their number is wrong, 22P02 and the like for a value that is not one of its type.
pub(super) fn parameters(bind: &Bind, prepared: &Prepared, settings: &TextSettings) -> Result<Vec<Option<ScalarValue>>, SqlError> {
    let wanted = prepared.parameter_types.len();
    let given = bind.parameters.len();
    let formats = bind.parameter_formats.len();
    if formats > 1 && formats != given {
        return Err(violation(format!("bind message has {formats} parameter formats but {given} parameters")));
    }
    if given != wanted {
        return Err(violation(format!(
            "bind message supplies {given} parameters, but prepared statement \"{}\" requires {wanted}",
            bind.statement
        )));
    }
    let formats = Formats(bind.parameter_formats.clone());
    let decode = |(at, bytes): (usize, &Option<bytes::Bytes>)| {
        let Some(bytes) = bytes else { return Ok(None) };
        let wanted = &prepared.parameter_types[at];
        let value = if formats.is_binary(at) {
            read_binary(bytes, &wanted.data_type, wanted.oid).map_err(|error| name_parameter(error, at))?
        } else {
            parse_text(utf8(bytes)?, &wanted.data_type, settings)?
        };
        Ok(Some(value))
    };
    bind.parameters.iter().enumerate().map(decode).collect()
}

fn name_parameter(error: SqlError, at: usize) -> SqlError {
    match error.sqlstate.as_str() {
        "22P03" => SqlError { message: format!("{} in bind parameter {}", error.message, at + 1), ..error },
        _ => error,
    }
}

/// Checks the result formats of a Bind message against the statement's columns.
pub(super) fn result_formats(bind: &Bind, prepared: &Prepared) -> Result<Formats, SqlError> {
    let formats = bind.result_formats.len();
    let columns = prepared.columns.as_ref().map_or(0, Vec::len);
    if formats > 1 && formats != columns {
        return Err(violation(format!("bind message has {formats} result formats but query has {columns} columns")));
    }
    Ok(Formats(bind.result_formats.clone()))
}
