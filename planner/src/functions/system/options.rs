//! Functions about objects that return rows of several columns: `pg_options_to_table`, options as `name=value`, and `pg_partition_tree`, the partitions of a
//! relation.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray, ListArray, ListBuilder, StringViewBuilder, StructArray, new_empty_array},
    buffer::OffsetBuffer,
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

/// No rows: no relation has partitions.
pub(super) fn no_partitions(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    let value = values.swap_remove(0);
    let columns = [SqlType::RegClass, SqlType::RegClass, SqlType::Boolean, SqlType::Integer].map(SqlType::array);
    let result = SqlType::Record(columns.to_vec());
    let kernel = Kernel { name: "pg_partition_tree", operator: None, evaluate: empty_lists, traits: Traits::NULLS };
    let types = vec![value.sql_type.arrow()];
    Ok(Typed::new(kernel.call(vec![value.expr], types, result.arrow(), &binder.environment), result))
}

fn empty_lists(call: &Call<'_>) -> Result<ArrayRef> {
    let DataType::Struct(fields) = call.result else { return Err(PlanError::internal("a record was to be given")) };
    let list = |field: &Arc<Field>| -> Result<ArrayRef> {
        let DataType::List(item) = field.data_type() else { return Err(PlanError::internal("lists were to be given")) };
        let offsets = OffsetBuffer::new_zeroed(call.rows);
        Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, new_empty_array(item.data_type()), None)?))
    };
    Ok(Arc::new(StructArray::try_new(fields.clone(), fields.iter().map(list).collect::<Result<_>>()?, None)?))
}
