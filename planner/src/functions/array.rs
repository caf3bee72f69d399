//! Arrays. Subscripts count from 1.

use std::sync::Arc;

use super::{
    dimensions::elements,
    kernel::{Call, Kernel, Traits},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    pg_text,
    types::SqlType,
};
use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, ListBuilder, MutableArrayData, PrimitiveBuilder, StructArray, UInt64Array, make_array},
    buffer::{NullBuffer, OffsetBuffer},
    compute::take,
    datatypes::{DataType, Field, Int32Type},
    row::{RowConverter, SortField},
};

/// Longest array that a function makes.
const MAX_ELEMENTS: i64 = 1 << 27;

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::kernel("||(anycompatiblearray, anycompatiblearray) anycompatiblearray", Traits::NULLS, concatenate).named("array_cat"),
    Entry::kernel("||(anycompatiblearray, anycompatible) anycompatiblearray", Traits::NULLS, append).named("array_append"),
    Entry::kernel("||(anycompatible, anycompatiblearray) anycompatiblearray", Traits::NULLS, prepend).named("array_prepend"),
    Entry::kernel("array_cat(anycompatiblearray, anycompatiblearray) anycompatiblearray", Traits::NULLS, concatenate),
    Entry::kernel("array_append(anycompatiblearray, anycompatible) anycompatiblearray", Traits::NULLS, append),
    Entry::kernel("array_prepend(anycompatible, anycompatiblearray) anycompatiblearray", Traits::NULLS, prepend),
    Entry::strict("array_subscript(anyarray, integer) anyelement", subscript),
    Entry::strict("array_slice(anyarray, integer, integer) anyarray", slice),
    Entry::strict("trim_array(anyarray, integer) anyarray", trim),
    Entry::kernel("array_position(anycompatiblearray, anycompatible) integer", Traits::NULLS, position),
    Entry::kernel("array_positions(anycompatiblearray, anycompatible) integer[]", Traits::NULLS, positions),
    Entry::kernel("array_remove(anycompatiblearray, anycompatible) anycompatiblearray", Traits::NULLS, remove),
    Entry::kernel("array_replace(anycompatiblearray, anycompatible, anycompatible) anycompatiblearray", Traits::NULLS, replace),
    Entry::kernel("array_to_string(anyarray, text) text", Traits::LOCAL, to_string),
    Entry::kernel("array_to_string(anyarray, text, text) text", Traits::LOCAL_NULLS, to_string),
    Entry::kernel("string_to_array(text, text) text[]", Traits::NULLS, of_string),
    Entry::kernel("string_to_array(text, text, text) text[]", Traits::NULLS, of_string),
    Entry::operator("@>(anycompatiblearray, anycompatiblearray) boolean", "arraycontains", |call| compare_sets(call, Sets::Contains)),
    Entry::operator("<@(anycompatiblearray, anycompatiblearray) boolean", "arraycontained", |call| compare_sets(call, Sets::Contained)),
    Entry::operator("&&(anycompatiblearray, anycompatiblearray) boolean", "arrayoverlap", |call| compare_sets(call, Sets::Overlap)),
    Entry::strict("array_positions_of(anyarray) bigint[]", ordinals),
    Entry::rewrite("_pg_expandarray(anyarray) integer", numbered),
    Entry::kernel("array_fill(anyelement, integer[]) anyarray", Traits::NULLS, fill),
];

/// A list column made of ranges of other columns.
struct Builder<'a> {
    values: MutableArrayData<'a>,
    lengths: Vec<usize>,
    valid: Vec<bool>,
}

impl<'a> Builder<'a> {
    fn new(sources: Vec<&'a arrow::array::ArrayData>, rows: usize) -> Self {
        Self { values: MutableArrayData::new(sources, true, rows), lengths: Vec::with_capacity(rows), valid: Vec::with_capacity(rows) }
    }

    /// Ends a row of `length` elements; `None` is NULL.
    fn end(&mut self, length: Option<usize>) {
        self.lengths.push(length.unwrap_or(0));
        self.valid.push(length.is_some());
    }

    fn finish(self, result: &DataType) -> Result<ArrayRef> {
        let DataType::List(field) = result else { return Err(PlanError::internal("an array was to be given")) };
        let values = make_array(self.values.freeze());
        let offsets = OffsetBuffer::from_lengths(self.lengths);
        Ok(Arc::new(ListArray::new(Arc::clone(field), offsets, values, Some(NullBuffer::from(self.valid)))))
    }
}

/// An argument as a list column of all rows.
fn list(call: &Call<'_>, index: usize) -> Result<ListArray> {
    let array = call.array(index)?;
    array.as_list_opt::<i32>().cloned().ok_or_else(|| PlanError::internal("an array was expected"))
}

pub(super) fn range(list: &ListArray, row: usize) -> Option<(usize, usize)> {
    list.is_valid(row).then(|| (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize))
}

fn concatenate(call: &Call<'_>) -> Result<ArrayRef> {
    let (left, right) = (list(call, 0)?, list(call, 1)?);
    let (left_data, right_data) = (left.values().to_data(), right.values().to_data());
    let mut builder = Builder::new(vec![&left_data, &right_data], call.rows);
    for row in 0..call.rows {
        let ranges = (range(&left, row), range(&right, row));
        let mut length = 0;
        for (source, found) in [(0, ranges.0), (1, ranges.1)] {
            if let Some((start, end)) = found {
                builder.values.try_extend(source, start, end)?;
                length += end - start;
            }
        }
        builder.end((ranges != (None, None)).then_some(length));
    }
    builder.finish(call.result)
}

fn append(call: &Call<'_>) -> Result<ArrayRef> {
    with_element(call, 0, 1, false)
}

fn prepend(call: &Call<'_>) -> Result<ArrayRef> {
    with_element(call, 1, 0, true)
}

fn with_element(call: &Call<'_>, array: usize, element: usize, first: bool) -> Result<ArrayRef> {
    let (lists, elements) = (list(call, array)?, call.array(element)?);
    let (list_data, element_data) = (lists.values().to_data(), elements.to_data());
    let mut builder = Builder::new(vec![&list_data, &element_data], call.rows);
    for row in 0..call.rows {
        if first {
            builder.values.try_extend(1, row, row + 1)?;
        }
        let (start, end) = range(&lists, row).unwrap_or((0, 0));
        builder.values.try_extend(0, start, end)?;
        if !first {
            builder.values.try_extend(1, row, row + 1)?;
        }
        builder.end(Some(end - start + 1));
    }
    builder.finish(call.result)
}

fn subscript(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, subscripts) = (list(call, 0)?, call.values::<Int32Type>(1)?);
    let places: UInt64Array = (0..call.rows)
        .map(|row| {
            let ((start, end), place) = (range(&lists, row)?, subscripts.get(row)?);
            let at = start.checked_add(usize::try_from(place).ok()?.checked_sub(1)?)?;
            (at < end).then_some(at as u64)
        })
        .collect();
    Ok(take(lists.values(), &places, None)?)
}

fn slice(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, lowers, uppers) = (list(call, 0)?, call.values::<Int32Type>(1)?, call.values::<Int32Type>(2)?);
    let data = lists.values().to_data();
    let mut builder = Builder::new(vec![&data], call.rows);
    for row in 0..call.rows {
        let (Some((start, end)), Some(lower), Some(upper)) = (range(&lists, row), lowers.get(row), uppers.get(row)) else {
            builder.end(None);
            continue;
        };
        let first = start + usize::try_from(lower.max(1)).unwrap_or(1) - 1;
        let last = start.saturating_add(usize::try_from(upper.max(0)).unwrap_or(0)).min(end);
        let first = first.min(last);
        builder.values.try_extend(0, first, last)?;
        builder.end(Some(last - first));
    }
    builder.finish(call.result)
}

fn trim(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, counts) = (list(call, 0)?, call.values::<Int32Type>(1)?);
    let data = lists.values().to_data();
    let mut builder = Builder::new(vec![&data], call.rows);
    for row in 0..call.rows {
        let (Some((start, end)), Some(count)) = (range(&lists, row), counts.get(row)) else {
            builder.end(None);
            continue;
        };
        let kept = usize::try_from(count).ok().and_then(|count| (end - start).checked_sub(count)).ok_or_else(|| {
            PlanError::new(sqlstate::ARRAY_SUBSCRIPT_ERROR, format!("number of elements to trim must be between 0 and {}", end - start))
        })?;
        builder.values.try_extend(0, start, start + kept)?;
        builder.end(Some(kept));
    }
    builder.finish(call.result)
}

/// Values as bytes that are equal when the values are.
struct Keys {
    rows: arrow::row::Rows,
}

impl Keys {
    fn of(columns: &[&ArrayRef]) -> Result<Vec<Self>> {
        let Some(first) = columns.first() else { return Ok(Vec::new()) };
        let converter = RowConverter::new(vec![SortField::new(first.data_type().clone())])?;
        columns.iter().map(|column| Ok(Self { rows: converter.convert_columns(std::slice::from_ref(*column))? })).collect()
    }
}

fn places(call: &Call<'_>, mut visit: impl FnMut(usize, Option<(usize, Vec<usize>)>) -> Result<()>) -> Result<()> {
    let (lists, elements) = (list(call, 0)?, call.array(1)?);
    let keys = Keys::of(&[lists.values(), &elements])?;
    for row in 0..call.rows {
        let Some((start, end)) = range(&lists, row) else {
            visit(row, None)?;
            continue;
        };
        let wanted = keys[1].rows.row(row);
        let found = (start..end).filter(|at| keys[0].rows.row(*at) == wanted).map(|at| at - start).collect();
        visit(row, Some((start, found)))?;
    }
    Ok(())
}

fn position(call: &Call<'_>) -> Result<ArrayRef> {
    let mut found = Vec::with_capacity(call.rows);
    places(call, |_, places| {
        found.push(places.and_then(|(_, places)| places.first().map(|place| *place as i32 + 1)));
        Ok(())
    })?;
    call.build::<Int32Type>(|row| Ok(found[row]))
}

fn positions(call: &Call<'_>) -> Result<ArrayRef> {
    let mut rows: Vec<Option<Vec<Option<i32>>>> = Vec::with_capacity(call.rows);
    places(call, |_, places| {
        rows.push(places.map(|(_, places)| places.into_iter().map(|place| Some(place as i32 + 1)).collect()));
        Ok(())
    })?;
    Ok(Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows)))
}

fn remove(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = list(call, 0)?;
    let data = lists.values().to_data();
    let mut builder = Builder::new(vec![&data], call.rows);
    places(call, |row, places| {
        let (Some((start, places)), Some((_, end))) = (places, range(&lists, row)) else {
            builder.end(None);
            return Ok(());
        };
        for at in start..end {
            if !places.contains(&(at - start)) {
                builder.values.try_extend(0, at, at + 1)?;
            }
        }
        builder.end(Some(end - start - places.len()));
        Ok(())
    })?;
    builder.finish(call.result)
}

fn replace(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, news) = (list(call, 0)?, call.array(2)?);
    let (data, new_data) = (lists.values().to_data(), news.to_data());
    let mut builder = Builder::new(vec![&data, &new_data], call.rows);
    places(call, |row, places| {
        let (Some((start, places)), Some((_, end))) = (places, range(&lists, row)) else {
            builder.end(None);
            return Ok(());
        };
        for at in start..end {
            if places.contains(&(at - start)) {
                builder.values.try_extend(1, row, row + 1)?;
            } else {
                builder.values.try_extend(0, at, at + 1)?;
            }
        }
        builder.end(Some(end - start));
        Ok(())
    })?;
    builder.finish(call.result)
}

fn to_string(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, separators) = (call.lists(0)?, call.texts(1)?);
    let nulls = if call.arguments.len() > 2 { Some(call.texts(2)?) } else { None };
    let settings = &call.environment().text;
    call.build_texts(|row| {
        let (Some(list), Some(separator)) = (lists.get(row), separators.get(row)) else { return Ok(None) };
        let texts = pg_text::format_array(elements(&list).as_ref(), settings)?;
        let null = nulls.as_ref().and_then(|nulls| nulls.get(row));
        let parts = (0..texts.len()).filter_map(|at| if texts.is_valid(at) { Some(texts.value(at)) } else { null });
        Ok(Some(parts.collect::<Vec<_>>().join(separator)))
    })
}

fn of_string(call: &Call<'_>) -> Result<ArrayRef> {
    use arrow::array::StringViewBuilder;
    let (texts, separators) = (call.texts(0)?, call.texts(1)?);
    let nulls = if call.arguments.len() > 2 { Some(call.texts(2)?) } else { None };
    let mut builder = ListBuilder::new(StringViewBuilder::new()).with_field(Field::new("item", DataType::Utf8View, true));
    for row in 0..call.rows {
        let Some(text) = texts.get(row) else {
            builder.append(false);
            continue;
        };
        let null = nulls.as_ref().and_then(|nulls| nulls.get(row));
        let mut push = |part: &str| builder.values().append_option((Some(part) != null).then_some(part));
        match separators.get(row) {
            _ if text.is_empty() => {}
            None => text.char_indices().for_each(|(at, character)| push(&text[at..at + character.len_utf8()])),
            Some("") => push(text),
            Some(separator) => text.split(separator).for_each(push),
        }
        builder.append(true);
    }
    Ok(Arc::new(builder.finish()))
}

/// The elements and their numbers, as two lists side by side.
fn numbered(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    let value = values.swap_remove(0);
    let result = SqlType::Record(vec![value.sql_type.clone(), SqlType::array(SqlType::Integer)]);
    let kernel = Kernel::strict("_pg_expandarray", |call| {
        let DataType::Struct(fields) = call.result else { return Err(PlanError::internal("a record was to be given")) };
        let lists = list(call, 0)?;
        let mut numbers = ListBuilder::new(PrimitiveBuilder::<Int32Type>::new());
        for row in 0..call.rows {
            let (start, end) = range(&lists, row).unwrap_or((0, 0));
            (1..=(end - start) as i32).for_each(|number| numbers.values().append_value(number));
            numbers.append(true);
        }
        Ok(Arc::new(StructArray::try_new(fields.clone(), vec![Arc::new(lists), Arc::new(numbers.finish())], None)?))
    });
    let types = vec![value.sql_type.arrow()];
    Ok(Typed::new(kernel.call(vec![value.expr], types, result.arrow(), &binder.environment), result))
}

#[derive(Clone, Copy)]
enum Sets {
    Contains,
    Contained,
    Overlap,
}

/// NULL elements equal nothing.
fn compare_sets(call: &Call<'_>, question: Sets) -> Result<ArrayRef> {
    let (left, right) = (list(call, 0)?, list(call, 1)?);
    let keys = Keys::of(&[left.values(), right.values()])?;
    call.build_booleans(|row| {
        let (Some(left_range), Some(right_range)) = (range(&left, row), range(&right, row)) else { return Ok(None) };
        let (outer, inner) = match question {
            Sets::Contains | Sets::Overlap => ((0, left_range, left.values()), (1, right_range, right.values())),
            Sets::Contained => ((1, right_range, right.values()), (0, left_range, left.values())),
        };
        let has = |at: usize| {
            inner.2.is_valid(at)
                && (outer.1.0..outer.1.1)
                    .any(|other| outer.2.is_valid(other) && keys[outer.0].rows.row(other) == keys[inner.0].rows.row(at))
        };
        let mut elements = inner.1.0..inner.1.1;
        Ok(Some(if matches!(question, Sets::Overlap) { elements.any(has) } else { elements.all(has) }))
    })
}

/// 1, 2 .. for each element.
fn ordinals(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.lists(0)?;
    let rows = (0..call.rows).map(|row| lists.get(row).map(|list| (1..=list.len() as i64).map(Some).collect::<Vec<_>>()));
    Ok(Arc::new(ListArray::from_iter_primitive::<arrow::datatypes::Int64Type, _, _>(rows)))
}

fn fill(call: &Call<'_>) -> Result<ArrayRef> {
    let (elements, sizes) = (call.array(0)?, call.lists(1)?);
    let data = elements.to_data();
    let mut builder = Builder::new(vec![&data], call.rows);
    for row in 0..call.rows {
        let Some(size) = sizes.get(row) else {
            return Err(PlanError::new("22004", "dimension array or low bound array cannot be null"));
        };
        let count = match size.as_primitive_opt::<Int32Type>() {
            Some(counts) if counts.len() == 1 && counts.is_valid(0) => i64::from(counts.value(0)),
            _ => return Err(PlanError::unsupported("arrays of several dimensions are not supported")),
        };
        if !(0..=MAX_ELEMENTS).contains(&count) {
            return Err(PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "array size exceeds the maximum allowed"));
        }
        for _ in 0..count {
            builder.values.try_extend(0, row, row + 1)?;
        }
        builder.end(Some(count as usize));
    }
    builder.finish(call.result)
}
