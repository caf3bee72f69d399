//! One value for a record or an array, by which it is told apart from others.
//!
//! An aggregate that remembers values keeps a record or an array as a piece of the batch it came in, and is charged for the whole batch each time. What
//! only counts them remembers these bytes instead.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, PrimitiveArray, StructArray},
    datatypes::{DataType, Float32Type, Float64Type, IntervalMonthDayNanoType, IntervalUnit},
    row::{RowConverter, SortField},
};
use datafusion::logical_expr::Expr;

use super::{
    float, interval,
    kernel::{Call, Kernel},
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    types::SqlType,
};

/// Bytes that are equal if and only if the values are, NULLs inside of them and all; `None` for types whose values are remembered as they are.
pub(crate) fn row_key(binder: &Binder<'_>, value: &Typed) -> Option<Expr> {
    if !matches!(value.sql_type, SqlType::Record(_) | SqlType::Array(_)) {
        return None;
    }
    let kernel = Kernel::strict("row_key", evaluate);
    Some(kernel.call(vec![value.expr.clone()], vec![value.sql_type.arrow()], SqlType::Bytea.arrow(), &binder.environment))
}

fn evaluate(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.array(0)?;
    let forms = one_form(&values)?;
    let rows = RowConverter::new(vec![SortField::new(forms.data_type().clone())])?.convert_columns(&[forms])?;
    call.build_binaries(|row| Ok(values.is_valid(row).then(|| rows.row(row))))
}

/// The same with each number and interval in the one form of all that are equal to it.
fn one_form(array: &ArrayRef) -> Result<ArrayRef> {
    Ok(match array.data_type() {
        DataType::Float32 => Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(float::normal_real)),
        DataType::Float64 => Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(float::normal_double)),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            let forms: PrimitiveArray<IntervalMonthDayNanoType> =
                array.as_primitive::<IntervalMonthDayNanoType>().try_unary::<_, _, PlanError>(interval::normal)?;
            Arc::new(forms)
        }
        DataType::Struct(fields) if !fields.is_empty() => {
            let array = array.as_struct();
            let columns = array.columns().iter().map(one_form).collect::<Result<_>>()?;
            Arc::new(StructArray::try_new(fields.clone(), columns, array.nulls().cloned())?)
        }
        DataType::List(field) => {
            let array = array.as_list::<i32>();
            let values = one_form(array.values())?;
            Arc::new(ListArray::try_new(Arc::clone(field), array.offsets().clone(), values, array.nulls().cloned())?)
        }
        _ => Arc::clone(array),
    })
}
