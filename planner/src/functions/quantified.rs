//! `= ANY (array)` and its kin.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array, AsArray, BooleanBuilder, UInt64Array, new_null_array},
    compute::take,
    datatypes::{DataType, Field, Schema},
    record_batch::RecordBatch,
};
use datafusion::{
    common::{Column, DFSchema, Result as DataFusionResult, ScalarValue},
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        expr::{InList, ScalarFunction},
    },
    physical_plan::PhysicalExpr,
};
use sqlparser::tokenizer::Span;

use super::{array::range, comparison::compares_as_it_is, session};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    types::SqlType,
};

/// `value op ANY (array)` or ALL. Over a constant array, equality becomes a list that the optimizer knows.
pub(crate) fn quantified(binder: &Binder<'_>, value: Typed, symbol: &str, array: Typed, all: bool) -> Result<Typed> {
    let SqlType::Array(element) = array.sql_type.clone() else { return Err(PlanError::internal("ANY over no array")) };
    let list_form = matches!((symbol, all), ("=", false) | ("<>", true)) && compares_as_it_is(&element);
    if list_form && let Some(items) = constant_items(&array.expr)? {
        if items.is_empty() {
            return Ok(Typed::boolean(datafusion::logical_expr::lit(all)));
        }
        return Ok(Typed::boolean(Expr::InList(InList::new(Box::new(value.expr), items, all))));
    }
    let column = |name: &str, sql_type: &SqlType| Typed::new(Expr::Column(Column::new_unqualified(name)), sql_type.clone());
    let inner = binder.call_operator(symbol, vec![column("value", &value.sql_type), column("element", &element)], Span::empty())?;
    let fields = vec![Field::new("value", value.sql_type.arrow(), true), Field::new("element", element.arrow(), true)];
    let schema = Arc::new(Schema::new(fields));
    let physical = session::physical(&inner.expr, &DFSchema::try_from(Arc::clone(&schema))?)?;
    let types = vec![value.sql_type.arrow(), array.sql_type.arrow()];
    let function = Quantified {
        name: format!("{symbol} {}", if all { "ALL" } else { "ANY" }),
        inner: inner.expr,
        physical,
        schema,
        all,
        types,
        signature: Signature::user_defined(Volatility::Immutable),
    };
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), vec![value.expr, array.expr]);
    Ok(Typed::boolean(Expr::ScalarFunction(call)))
}

/// The elements of an array that is written out, none of which is NULL.
fn constant_items(array: &Expr) -> Result<Option<Vec<Expr>>> {
    match array {
        Expr::Literal(ScalarValue::List(list), _) if list.len() == 1 && list.is_valid(0) => {
            let values = list.value(0);
            if values.null_count() > 0 {
                return Ok(None);
            }
            let items = (0..values.len()).map(|at| Ok(Expr::Literal(ScalarValue::try_from_array(&values, at)?, None)));
            items.collect::<Result<Vec<_>>>().map(Some)
        }
        Expr::ScalarFunction(function) if function.name() == "make_array" => Ok(Some(function.args.clone())),
        _ => Ok(None),
    }
}

/// A comparison with each element, whose results are brought together.
#[derive(Debug)]
struct Quantified {
    name: String,
    /// Compares the columns `value` and `element`.
    inner: Expr,
    physical: Arc<dyn PhysicalExpr>,
    schema: Arc<Schema>,
    all: bool,
    types: Vec<DataType>,
    signature: Signature,
}

impl PartialEq for Quantified {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner && self.all == other.all && self.types == other.types
    }
}

impl Eq for Quantified {}

impl Hash for Quantified {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
        self.all.hash(state);
    }
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn coerce_types(&self, _: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        Ok(self.types.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let values = args.args[0].to_array(args.number_rows)?;
        let arrays = args.args[1].to_array(args.number_rows)?;
        let lists = arrays.as_list::<i32>();
        let owners: UInt64Array = (0..lists.len())
            .flat_map(|row| std::iter::repeat_n(row as u64, range(lists, row).map_or(0, |(start, end)| end - start)))
            .collect();
        let elements: UInt64Array =
            (0..lists.len()).flat_map(|row| range(lists, row).map_or(0..0, |(start, end)| start as u64..end as u64)).collect();
        let columns = vec![take(&values, &owners, None)?, take(lists.values(), &elements, None)?];
        let compared = if owners.is_empty() {
            new_null_array(&DataType::Boolean, 0)
        } else {
            self.physical.evaluate(&RecordBatch::try_new(Arc::clone(&self.schema), columns)?)?.into_array(owners.len())?
        };
        let compared = compared.as_boolean();
        let mut builder = BooleanBuilder::with_capacity(lists.len());
        let mut at = 0;
        for row in 0..lists.len() {
            let Some((start, end)) = range(lists, row) else {
                builder.append_null();
                continue;
            };
            let results = (at..at + end - start).map(|place| compared.is_valid(place).then(|| compared.value(place)));
            at += end - start;
            let (mut decided, mut unknown) = (false, false);
            for result in results {
                decided |= result == Some(!self.all);
                unknown |= result.is_none();
            }
            builder.append_option(match (decided, unknown) {
                (true, _) => Some(!self.all),
                (false, true) => None,
                (false, false) => Some(self.all),
            });
        }
        Ok(ColumnarValue::Array(Arc::new(builder.finish())))
    }
}
