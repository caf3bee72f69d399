//! Conversions between types.
//!
//! Where Arrow converts as Postgres does (widening numbers), the conversion is DataFusion's own cast, which its optimizer knows; all others are
//! kernels. Constants are converted when they are bound.

mod container;
mod length;
mod moment;
mod number;
pub(in crate::functions) mod object;
mod text;

use std::sync::Arc;

use arrow::{
    array::new_empty_array,
    datatypes::{DataType, Field},
};
use datafusion::{
    common::ScalarValue,
    logical_expr::{Expr, expr::Cast},
};

pub(crate) use self::{length::fit, moment::read_interval_with_fields, number::digits_of_text, object::relation_named, text::read};
use super::kernel::{Evaluate, Kernel, Traits};
use crate::{
    bind::Binder,
    types::{SqlType, decimal::Digits},
};

/// How a value becomes one of another type.
#[derive(Clone, Copy)]
enum Conversion {
    /// It is one already.
    Same,
    /// By Arrow's cast.
    Native,
    /// By code of ours.
    Code(&'static str, Traits, Evaluate),
}

/// The expression as another type; `None` if there is no such conversion.
pub(crate) fn convert(binder: &Binder<'_>, expr: Expr, from: &SqlType, to: &SqlType) -> Option<Expr> {
    if *from == SqlType::Void && to.is_text() {
        // The text form of nothing is empty; a function that waits answers with it.
        let is_constant = matches!(expr, Expr::Literal(..));
        return Some(if is_constant { Expr::Literal(ScalarValue::Utf8View(Some(String::new())), None) } else { expr });
    }
    let conversion = find(from, to)?;
    if let Expr::Literal(value, _) = &expr {
        if value.is_null() {
            return Some(Expr::Literal(ScalarValue::try_new_null(&to.arrow()).ok()?, None));
        }
        if let Conversion::Native = conversion
            && let Ok(value) = value.cast_to(&to.arrow())
        {
            return Some(Expr::Literal(value, None));
        }
    }
    Some(match conversion {
        Conversion::Same => expr,
        Conversion::Native => native(expr, &from.arrow(), &to.arrow()),
        Conversion::Code(name, traits, evaluate) => {
            let kernel = Kernel { name, operator: None, evaluate, traits };
            kernel.call(vec![expr], vec![from.arrow()], to.arrow(), &binder.environment)
        }
    })
}

/// Arrow's cast, if the types differ.
pub(crate) fn native(expr: Expr, from: &DataType, to: &DataType) -> Expr {
    if from == to { expr } else { Expr::Cast(Cast::new(Box::new(expr), to.clone())) }
}

fn find(from: &SqlType, to: &SqlType) -> Option<Conversion> {
    use Conversion::{Code, Native, Same};
    use SqlType as T;
    if from == to {
        return Some(Same);
    }
    Some(match (from, to) {
        (T::SmallInt, T::Integer | T::BigInt) | (T::Integer, T::BigInt) => Native,
        (T::SmallInt | T::Integer | T::BigInt, T::Real | T::Double) | (T::Real, T::Double) => Native,
        (from, T::Numeric(..)) if from.is_integer() || from.is_numeric() => {
            let (has, wants) = (Digits::of(from), Digits::of(to));
            let widens = wants.scale >= has.scale
                && i32::from(wants.precision) - i32::from(wants.scale) >= i32::from(has.precision) - i32::from(has.scale);
            match (widens, from.is_numeric()) {
                (true, _) => Native,
                (false, true) => Code("numeric", Traits::STRICT, number::numeric_to_numeric),
                (false, false) => Code("numeric", Traits::STRICT, number::integer_to_numeric),
            }
        }
        (from, to) if from.is_number() && to.is_number() => number::find(from, to)?,
        (T::Boolean, T::Integer) => Native,
        (T::Integer, T::Boolean) => Code("bool", Traits::STRICT, number::integer_to_boolean),
        (from, to) if from.is_oid() || to.is_oid() => object::find(from, to)?,
        (T::Char, to) if to.is_text() => Code("rtrim_blanks", Traits::STRICT, length::without_blanks),
        (from, T::InternalChar) if from.is_text() => Code("char", Traits::STRICT, length::first_character),
        (from, to) if from.is_text() && to.is_text() => Same,
        (
            T::Date | T::Time | T::Timestamp | T::TimestampTz | T::Interval,
            T::Date | T::Time | T::Timestamp | T::TimestampTz | T::Interval,
        ) => moment::find(from, to)?,
        (T::Json, T::Jsonb) => Code("jsonb", Traits::STRICT, container::json_to_jsonb),
        (T::Jsonb, T::Json) => Same,
        (T::Jsonb, T::Boolean) => Code("bool", Traits::STRICT, container::jsonb_to_boolean),
        (T::Jsonb, to) if to.is_number() => Code("number", Traits::STRICT, container::jsonb_to_number),
        (T::Array(from), T::Array(to)) => return container::find(from, to),
        (T::Record(_), to) if to.is_text() => Code("text", Traits::LOCAL, container::record_to_text),
        (from, to) if to.is_text() => text::to_text(from),
        (from, to) if from.is_text() => text::from_text(to),
        _ => return None,
    })
}

/// An array without elements.
pub(crate) fn empty_array(element: &SqlType) -> ScalarValue {
    let field = Arc::new(Field::new("item", element.arrow(), true));
    let values = new_empty_array(&element.arrow());
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([0]);
    ScalarValue::List(Arc::new(arrow::array::ListArray::new(field, offsets, values, None)))
}
