//! Settings of the session, which the server keeps.

use arrow::{array::ArrayRef, datatypes::Int32Type};
use datafusion::common::ScalarValue;

use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    functions::{
        environment::Signal,
        kernel::{Call, Kernel},
    },
    types::SqlType,
};

/// The value of a setting; of one whose name is a constant that at the beginning of the statement.
pub(super) fn current(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    binder.require_session("current_setting")?;
    let Some(name) = values[0].constant_text() else { return Ok(current_of_rows(binder, values)) };
    if let Some(value) = binder.context.system.setting(&name.to_lowercase()) {
        return Ok(Typed::text(&value));
    }
    let missing_ok = values.get(1).and_then(Typed::constant).is_some_and(|value| *value == ScalarValue::Boolean(Some(true)));
    if missing_ok {
        return Ok(Typed::null(SqlType::Text));
    }
    Err(unrecognized(name))
}

fn unrecognized(name: &str) -> PlanError {
    PlanError::new(sqlstate::UNDEFINED_OBJECT, format!("unrecognized configuration parameter \"{name}\""))
}

fn current_of_rows(binder: &Binder<'_>, values: Vec<Typed>) -> Typed {
    let kernel = Kernel { name: "current_setting", operator: None, evaluate: each, traits: super::MEASURED };
    let types = values.iter().map(|value| value.sql_type.arrow()).collect();
    let arguments = values.into_iter().map(|value| value.expr).collect();
    Typed::new(kernel.call(arguments, types, SqlType::Text.arrow(), &binder.environment), SqlType::Text)
}

fn each(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    let missing_ok = if call.arguments.len() > 1 { Some(call.booleans(1)?) } else { None };
    call.build_texts(|row| {
        let Some(name) = names.get(row) else { return Ok(None) };
        match environment.live.setting(&name.to_lowercase()) {
            Some(value) => Ok(Some(value)),
            None if missing_ok.as_ref().is_some_and(|missing_ok| missing_ok.get(row) == Some(true)) => Ok(None),
            None => Err(unrecognized(name)),
        }
    })
}

/// `set_config` gives the value back; the server sees the call before it is bound if it is to have an effect.
pub(super) fn set(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    binder.require_session("set_config")?;
    Ok(values.swap_remove(1))
}

/// The number by which the session can be cancelled.
pub(super) fn backend_pid(binder: &Binder<'_>, _: Vec<Typed>) -> Result<Typed> {
    binder.require_session("pg_backend_pid")?;
    let process = binder.context.system.setting("backend_pid").and_then(|text| text.parse().ok());
    Ok(Typed::integer(process.unwrap_or(1)))
}

/// When the server was started.
pub(super) fn start_time(binder: &Binder<'_>, _: Vec<Typed>) -> Result<Typed> {
    binder.require_session("pg_postmaster_start_time")?;
    let started = ScalarValue::TimestampMicrosecond(binder.environment.live.started_us(), Some("UTC".into()));
    Ok(Typed::literal(started, SqlType::TimestampTz))
}

/// Tells sessions something; false where there is none of that number.
pub(super) fn signal(call: &Call<'_>, signal: Signal) -> Result<ArrayRef> {
    let (processes, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_booleans(|row| Ok(processes.get(row).map(|process| environment.live.signal(process, signal))))
}
