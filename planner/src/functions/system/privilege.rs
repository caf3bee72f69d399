//! Privileges: there is one user, who may do everything.

use arrow::{array::ArrayRef, datatypes::Int32Type};
use datafusion::logical_expr::lit;
use sqlparser::tokenizer::Span;

use crate::{
    bind::{Binder, Typed},
    catalog::no_schema,
    error::{PlanError, Result},
    functions::kernel::{Call, Kernel},
    types::SqlType,
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

/// What may be done with a new object of a kind, by everybody and by its owner.
pub(super) fn by_default(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    let types = values.iter().map(|value| value.sql_type.arrow()).collect();
    let kernel = Kernel::strict("acldefault", defaults);
    let items = kernel.call(values.into_iter().map(|value| value.expr).collect(), types, SqlType::Text.arrow(), &binder.environment);
    binder.call("string_to_array", vec![Typed::new(items, SqlType::Text), Typed::text(",")], Span::empty())
}

fn defaults(call: &Call<'_>) -> Result<ArrayRef> {
    let (kinds, owners) = (call.texts(0)?, call.values::<Int32Type>(1)?);
    call.build_texts(|row| {
        let (Some(kind), Some(owner)) = (kinds.get(row), owners.get(row)) else { return Ok(None) };
        let (everybody, own) = match kind {
            "c" => ("", ""),
            "r" => ("", "arwdDxt"),
            "s" => ("", "rwU"),
            "d" => ("Tc", "CTc"),
            "f" => ("X", "X"),
            "l" | "T" => ("U", "U"),
            "L" => ("", "rw"),
            "n" => ("", "UC"),
            "p" => ("", "sA"),
            "t" => ("", "C"),
            "F" | "S" => ("", "U"),
            _ => return Err(PlanError::new("XX000", format!("unrecognized object type abbreviation: {kind}"))),
        };
        let owner = super::owner_name(owner);
        let item = |grantee: &str, rights: &str| (!rights.is_empty()).then(|| format!("{grantee}={rights}/{owner}"));
        let items: Vec<String> = [item("", everybody), item(&owner, own)].into_iter().flatten().collect();
        Ok(Some(items.join(",")))
    })
}
