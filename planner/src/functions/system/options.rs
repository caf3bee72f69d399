//! `pg_options_to_table`: options of objects, `name=value`, as rows.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, ListBuilder, StringViewBuilder, StructArray},
    datatypes::{DataType, Field},
};

use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    functions::kernel::{Call, Kernel, Traits},
    types::SqlType,
};

/// Names and values as two lists side by side.
pub(super) fn to_table(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    let value = values.swap_remove(0);
    let texts = SqlType::array(SqlType::Text);
    let result = SqlType::Record(vec![texts.clone(), texts]);
    let kernel = Kernel { name: "pg_options_to_table", operator: None, evaluate: split, traits: Traits::STRICT };
    let types = vec![value.sql_type.arrow()];
    Ok(Typed::new(kernel.call(vec![value.expr], types, result.arrow(), &binder.environment), result))
}

fn split(call: &Call<'_>) -> Result<ArrayRef> {
    let DataType::Struct(fields) = call.result else { return Err(PlanError::internal("a record was to be given")) };
    let lists = call.lists(0)?;
    let builder = |field: &Field| match field.data_type() {
        DataType::List(item) => Ok(ListBuilder::new(StringViewBuilder::new()).with_field(Arc::clone(item))),
        _ => Err(PlanError::internal("lists were to be given")),
    };
    let (mut names, mut values) = (builder(&fields[0])?, builder(&fields[1])?);
    for row in 0..call.rows {
        for option in lists.get(row).iter().flat_map(|list| list.as_string_view().iter().flatten()) {
            let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
            names.values().append_value(name);
            values.values().append_option(value);
        }
        names.append(true);
        values.append(true);
    }
    Ok(Arc::new(StructArray::try_new(fields.clone(), vec![Arc::new(names.finish()), Arc::new(values.finish())], None)?))
}
