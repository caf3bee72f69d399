//! Floats as Postgres compares them: there is one NaN, above all numbers, and one zero.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray},
    datatypes::{DataType, Float32Type, Float64Type},
};
use datafusion::{common::ScalarValue, logical_expr::Expr};

use super::kernel::{Call, Kernel};
use crate::{
    bind::{Binder, Typed},
    error::Result,
    types::SqlType,
};

/// Name of the kernel that gives the normal form.
pub(super) const NORMAL_FORM: &str = "float_normal_form";

/// A value that is held in one way only, so that it can be compared by the order of its bits. Constants that are so already stay constants.
pub(super) fn normal_form(binder: &Binder<'_>, value: Typed) -> Typed {
    let normal = match &value.expr {
        Expr::Literal(ScalarValue::Float64(number), _) => number.is_none_or(|number| number != 0.0 && !number.is_nan()),
        Expr::Literal(ScalarValue::Float32(number), _) => number.is_none_or(|number| number != 0.0 && !number.is_nan()),
        Expr::ScalarFunction(function) => function.name() == NORMAL_FORM,
        _ => false,
    };
    if normal {
        return value;
    }
    let arrow = value.sql_type.arrow();
    let evaluate = if value.sql_type == SqlType::Real { normal_reals } else { normal_doubles };
    let kernel = Kernel::strict(NORMAL_FORM, evaluate);
    Typed::new(kernel.call(vec![value.expr], vec![arrow.clone()], arrow, &binder.environment), value.sql_type)
}

/// Of a number.
pub(super) fn normal_real(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value + 0.0 }
}

/// Of a number.
pub(super) fn normal_double(value: f64) -> f64 {
    if value.is_nan() { f64::NAN } else { value + 0.0 }
}

fn normal_reals(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    debug_assert_eq!(array.data_type(), &DataType::Float32);
    Ok(Arc::new(array.as_primitive::<Float32Type>().unary::<_, Float32Type>(normal_real)))
}

fn normal_doubles(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    debug_assert_eq!(array.data_type(), &DataType::Float64);
    Ok(Arc::new(array.as_primitive::<Float64Type>().unary::<_, Float64Type>(normal_double)))
}
