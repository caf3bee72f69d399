//! `pg_sleep`: the only function that waits. It is asynchronous, so that it keeps no thread, and a cancelled query drops it.

use std::{sync::Arc, time::Duration};

use arrow::{
    array::{Array, AsArray, StringViewArray},
    datatypes::{DataType, Float64Type},
};
use async_trait::async_trait;
use datafusion::{
    common::Result as DataFusionResult,
    logical_expr::{
        ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
        async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl},
        expr::ScalarFunction,
    },
};
use millpond_storage::env;

use crate::{bind::Typed, error::PlanError, types::SqlType};

/// Waits for so many seconds per row.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(PlanError::unsupported("pg_sleep is only supported in queries").into())
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let seconds = args.args[0].to_array(args.number_rows)?;
        for seconds in seconds.as_primitive::<Float64Type>().iter().flatten() {
            // Below zero is at once, as in Postgres; what no duration can hold waits as long as one can.
            let wait = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
            env::sleep(wait).await;
        }
        let done: StringViewArray = (0..seconds.len()).map(|row| seconds.is_valid(row).then_some("")).collect();
        Ok(ColumnarValue::Array(Arc::new(done)))
    }
}

/// `pg_sleep(seconds)`.
pub(super) fn sleep(values: Vec<Typed>) -> Typed {
    let function = AsyncScalarUDF::new(Arc::new(Sleep { signature: Signature::exact(vec![DataType::Float64], Volatility::Volatile) }));
    let call = ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), values.into_iter().map(|value| value.expr).collect());
    Typed::new(Expr::ScalarFunction(call), SqlType::Void)
}
