//! Settings of the session, which the server keeps.

use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    types::SqlType,
};

/// The value of a setting whose name is a constant.
pub(super) fn current(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let Some(name) = values[0].constant_text() else {
        return Err(PlanError::unsupported("current_setting with a name that is no constant is not supported").with_hint("Use SHOW."));
    };
    if let Some(value) = binder.context.system.setting(&name.to_lowercase()) {
        return Ok(Typed::text(&value));
    }
    let missing_ok =
        values.get(1).and_then(Typed::constant).is_some_and(|value| *value == datafusion::common::ScalarValue::Boolean(Some(true)));
    if missing_ok {
        return Ok(Typed::null(SqlType::Text));
    }
    Err(super::invalid(format!("unrecognized configuration parameter \"{name}\"")))
}

/// `set_config` gives the value back; the server sees the call before it is bound if it is to have an effect.
pub(super) fn set(_: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    Ok(values.swap_remove(1))
}

/// The number by which the session can be cancelled.
pub(super) fn backend_pid(binder: &Binder<'_>, _: Vec<Typed>) -> Result<Typed> {
    let process = binder.context.system.setting("backend_pid").and_then(|text| text.parse().ok());
    Ok(Typed::integer(process.unwrap_or(1)))
}
