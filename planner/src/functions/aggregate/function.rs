//! An aggregate of our own as an aggregate function of DataFusion's.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef},
    compute::take_arrays,
    datatypes::{DataType, Field, FieldRef},
    row::{OwnedRow, RowConverter, SortField},
};
use datafusion::{
    common::{HashSet, Result as DataFusionResult, ScalarValue},
    logical_expr::{
        Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility,
        function::{AccumulatorArgs, StateFieldsArgs},
    },
};

/// Makes an accumulator of one group.
pub(super) type MakeAccumulator = fn(&Recipe) -> Box<dyn Accumulator>;

/// Makes an accumulator of all groups.
pub(super) type MakeGroups = fn(&Recipe) -> Box<dyn GroupsAccumulator>;

/// What an aggregate is made of.
#[derive(Clone)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) arguments: Vec<DataType>,
    pub(super) result: DataType,
    /// Types of an accumulator's state.
    pub(super) state: Vec<DataType>,
    /// An empty input gives something else than NULL.
    pub(super) never_null: bool,
    pub(super) accumulator: MakeAccumulator,
    /// All groups in one, where that is faster.
    pub(super) groups: Option<MakeGroups>,
}

/// The function.
struct Function {
    recipe: Recipe,
    signature: Signature,
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?})", self.recipe.name, self.recipe.arguments)
    }
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (&self.recipe, &other.recipe);
        own.name == other.name && own.arguments == other.arguments && own.result == other.result
    }
}

impl Eq for Function {}

impl Hash for Function {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.recipe.name.hash(state);
        self.recipe.arguments.hash(state);
    }
}

impl Recipe {
    pub(super) fn into_function(self) -> Arc<AggregateUDF> {
        let signature = Signature::user_defined(Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(Function { recipe: self, signature }))
    }
}

impl AggregateUDFImpl for Function {
    fn name(&self) -> &str {
        self.recipe.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.recipe.result.clone())
    }

    fn is_nullable(&self) -> bool {
        !self.recipe.never_null
    }

    fn coerce_types(&self, _: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        Ok(self.recipe.arguments.clone())
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        let inner = (self.recipe.accumulator)(&self.recipe);
        if args.is_distinct { Ok(Box::new(Distinct::new(inner, &self.recipe.arguments)?)) } else { Ok(inner) }
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        let types: Vec<DataType> = if args.is_distinct {
            self.recipe.arguments.iter().map(|argument| DataType::List(Arc::new(Field::new("item", argument.clone(), true)))).collect()
        } else {
            self.recipe.state.clone()
        };
        let field = |(index, data_type): (usize, DataType)| Arc::new(Field::new(format!("{}[{index}]", args.name), data_type, true));
        Ok(types.into_iter().enumerate().map(field).collect())
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.recipe.groups.is_some() && !args.is_distinct
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        match self.recipe.groups {
            Some(groups) => Ok(groups(&self.recipe)),
            None => datafusion::common::not_impl_err!("no groups accumulator of {}", self.recipe.name),
        }
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> DataFusionResult<Box<dyn Accumulator>> {
        self.accumulator(args)
    }
}

/// Passes on each combination of values once.
struct Distinct {
    inner: Box<dyn Accumulator>,
    converter: RowConverter,
    seen: HashSet<OwnedRow>,
    bytes: usize,
}

impl std::fmt::Debug for Distinct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Distinct({} values)", self.seen.len())
    }
}

impl Distinct {
    fn new(inner: Box<dyn Accumulator>, types: &[DataType]) -> DataFusionResult<Self> {
        let fields = types.iter().map(|data_type| SortField::new(data_type.clone())).collect();
        Ok(Self { inner, converter: RowConverter::new(fields)?, seen: HashSet::new(), bytes: 0 })
    }
}

impl Accumulator for Distinct {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let rows = self.converter.convert_columns(values)?;
        let mut fresh = Vec::new();
        for row in 0..rows.num_rows() {
            let key = rows.row(row).owned();
            let size = key.as_ref().len();
            if self.seen.insert(key) {
                self.bytes += size + size_of::<OwnedRow>();
                fresh.push(row as u64);
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        self.inner.update_batch(&take_arrays(values, &arrow::array::UInt64Array::from(fresh), None)?)
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size() + self.bytes
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let columns = self.converter.convert_rows(self.seen.iter().map(|row| row.row()))?;
        columns.iter().map(|column| Ok(ScalarValue::List(list_of(Arc::clone(column))))).collect()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        use arrow::array::AsArray;
        let Some(first) = states.first() else { return Ok(()) };
        for row in 0..first.len() {
            let columns: Vec<ArrayRef> = states.iter().map(|state| state.as_list::<i32>().value(row)).collect();
            if columns.first().is_some_and(|column| !column.is_empty()) {
                self.update_batch(&columns)?;
            }
        }
        Ok(())
    }
}

/// One list of all values.
pub(super) fn list_of(values: ArrayRef) -> Arc<arrow::array::ListArray> {
    let field = Arc::new(Field::new("item", values.data_type().clone(), true));
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([values.len()]);
    Arc::new(arrow::array::ListArray::new(field, offsets, values, None))
}
