//! A function computed by our own code over columns, as a scalar function of DataFusion's.

use std::{
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Field, FieldRef},
};
use datafusion::{
    common::{Result as DataFusionResult, ScalarValue},
    logical_expr::{
        ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility, expr::ScalarFunction,
    },
};

use super::environment::Environment;
use crate::error::Result;

/// Computes a column from the argument columns.
pub(crate) type Evaluate = fn(&Call<'_>) -> Result<ArrayRef>;

/// One evaluation.
pub(crate) struct Call<'a> {
    /// The arguments; constants are scalars.
    pub(crate) arguments: &'a [ColumnarValue],
    /// Rows of the result.
    pub(crate) rows: usize,
    /// Type of the result.
    pub(crate) result: &'a DataType,
    environment: Option<&'a Environment>,
}

impl<'a> Call<'a> {
    /// An evaluation outside of DataFusion.
    pub(crate) fn new(arguments: &'a [ColumnarValue], rows: usize, result: &'a DataType, environment: Option<&'a Environment>) -> Self {
        Self { arguments, rows, result, environment }
    }

    /// The session; only functions that are registered as depending on it may ask.
    pub(crate) fn environment(&self) -> &'a Environment {
        self.environment.expect("the function is registered as one of the session")
    }

    /// An argument as a column of all rows.
    pub(crate) fn array(&self, index: usize) -> Result<ArrayRef> {
        Ok(self.arguments[index].to_array(self.rows)?)
    }

    /// The type of an argument.
    pub(crate) fn argument_type(&self, index: usize) -> DataType {
        self.arguments[index].data_type()
    }
}

/// What is known of a kernel beside its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// NULL if any argument is NULL.
    pub(crate) strict: bool,
    /// Depends on the session's settings or the catalog.
    pub(crate) local: bool,
    /// Depends on the catalog or the state of the server, not only on its arguments and the session's settings.
    pub(crate) live: bool,
    /// Gives another value each time.
    pub(crate) volatile: bool,
}

impl Traits {
    pub(crate) const STRICT: Self = Self { strict: true, local: false, live: false, volatile: false };
    pub(crate) const NULLS: Self = Self { strict: false, local: false, live: false, volatile: false };
    pub(crate) const LOCAL: Self = Self { strict: true, local: true, live: false, volatile: false };
    pub(crate) const LOCAL_NULLS: Self = Self { strict: false, local: true, live: false, volatile: false };
    pub(crate) const CATALOG: Self = Self { strict: true, local: true, live: true, volatile: false };
    pub(crate) const VOLATILE: Self = Self { strict: true, local: false, live: false, volatile: true };
}

/// The function.
#[derive(Clone)]
struct KernelFunction {
    name: &'static str,
    /// Shown between the operands instead of the name.
    operator: Option<&'static str>,
    arguments: Vec<DataType>,
    result: DataType,
    evaluate: Evaluate,
    traits: Traits,
    environment: Option<Arc<Environment>>,
    signature: Signature,
}

impl fmt::Debug for KernelFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelFunction")
            .field("name", &self.name)
            .field("arguments", &self.arguments)
            .field("result", &self.result)
            .finish()
    }
}

impl PartialEq for KernelFunction {
    fn eq(&self, other: &Self) -> bool {
        let same_session = match (&self.environment, &other.environment) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own.agrees(other),
            _ => false,
        };
        self.name == other.name && self.arguments == other.arguments && self.result == other.result && same_session
    }
}

impl Eq for KernelFunction {}

impl Hash for KernelFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
        self.arguments.hash(state);
        self.result.hash(state);
    }
}

impl KernelFunction {
    fn written(&self, arguments: &[String]) -> String {
        match (self.operator, arguments) {
            (Some(operator), [left, right]) => format!("({left} {operator} {right})"),
            (Some(operator), [only]) => format!("({operator} {only})"),
            _ => format!("{}({})", self.name, arguments.join(", ")),
        }
    }
}

impl ScalarUDFImpl for KernelFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(self.written(&args.iter().map(ToString::to_string).collect::<Vec<_>>()))
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(self.written(&args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.result.clone())
    }

    /// Many functions give NULL for arguments that are none (`->`, `regexp_match`, `array_length`), so no result is promised to be there.
    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(Field::new(self.name, self.result.clone(), true)))
    }

    fn is_strict(&self) -> bool {
        self.traits.strict
    }

    /// The names of a record's fields are the caller's own.
    fn coerce_types(&self, given: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let one = |(wanted, given): (&DataType, &DataType)| if same_but_for_names(wanted, given) { given.clone() } else { wanted.clone() };
        Ok(self.arguments.iter().zip(given).map(one).collect())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let constant = !self.traits.volatile && args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        if self.traits.strict && args.args.iter().any(|argument| matches!(argument, ColumnarValue::Scalar(value) if value.is_null())) {
            return Ok(ColumnarValue::Scalar(ScalarValue::try_new_null(&self.result)?));
        }
        let rows = if constant { 1 } else { args.number_rows };
        let call = Call::new(&args.args, rows, &self.result, self.environment.as_deref());
        let array = (self.evaluate)(&call)?;
        debug_assert_eq!((array.len(), array.data_type()), (rows, &self.result), "{}", self.name);
        if constant { Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?)) } else { Ok(ColumnarValue::Array(array)) }
    }
}

/// Whether types differ at most in the names of the fields of records.
fn same_but_for_names(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::Struct(left), DataType::Struct(right)) => {
            let pairs = left.iter().zip(right);
            left.len() == right.len() && pairs.into_iter().all(|(left, right)| same_but_for_names(left.data_type(), right.data_type()))
        }
        (DataType::List(left), DataType::List(right)) => same_but_for_names(left.data_type(), right.data_type()),
        _ => left == right,
    }
}

/// Whether an expression is the call of a function that depends on the catalog or the state of the server.
pub(crate) fn is_live_call(expr: &Expr) -> bool {
    let kernel = |call: &ScalarFunction| call.func.inner().downcast_ref::<KernelFunction>().is_some_and(|kernel| kernel.traits.live);
    matches!(expr, Expr::ScalarFunction(call) if kernel(call))
}

/// A kernel to be called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// Its name, unique with the types of its arguments.
    pub(crate) name: &'static str,
    /// The operator it is, if it is one.
    pub(crate) operator: Option<&'static str>,
    pub(crate) evaluate: Evaluate,
    pub(crate) traits: Traits,
}

impl Kernel {
    /// A function of its arguments alone, NULL if any of them is.
    pub(crate) const fn strict(name: &'static str, evaluate: Evaluate) -> Self {
        Self { name, operator: None, evaluate, traits: Traits::STRICT }
    }

    /// The call with arguments of these types.
    pub(crate) fn call(self, arguments: Vec<Expr>, types: Vec<DataType>, result: DataType, environment: &Arc<Environment>) -> Expr {
        let volatility = if self.traits.volatile { Volatility::Volatile } else { Volatility::Immutable };
        let function = KernelFunction {
            name: self.name,
            operator: self.operator,
            signature: if types.is_empty() { Signature::nullary(volatility) } else { Signature::user_defined(volatility) },
            arguments: types,
            result,
            evaluate: self.evaluate,
            traits: self.traits,
            environment: self.traits.local.then(|| Arc::clone(environment)),
        };
        Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), arguments))
    }
}
