//! Privileges: there is one user, who may do everything.

use datafusion::logical_expr::lit;

use crate::{
    bind::{Binder, Typed},
    catalog::no_schema,
    error::Result,
};

/// Yes, unless something is NULL.
pub(super) fn granted(_: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let tests = values.into_iter().filter(|value| value.constant().is_none()).map(|value| value.expr.is_not_null());
    match tests.reduce(datafusion::logical_expr::Expr::and) {
        None => Ok(Typed::boolean(lit(true))),
        Some(known) => Ok(Typed::boolean(super::super::conditional::case(vec![(known, lit(true))], None))),
    }
}

/// The same for a schema of a name, which has to exist.
pub(super) fn of_schema(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let named = values.len().checked_sub(2).and_then(|place| values.get(place)).and_then(|value| value.constant_text().map(str::to_owned));
    if let Some(name) = named
        && binder.environment.catalog.schema(&name).is_none()
    {
        return Err(no_schema(&name));
    }
    granted(binder, values)
}
