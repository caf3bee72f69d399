//! Arrays of arrays, which are what Postgres calls arrays of several dimensions: their sizes, their elements one after the other, and their
//! order.

use std::{cmp::Ordering, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, make_comparator},
    buffer::OffsetBuffer,
    compute::SortOptions,
    datatypes::{DataType, Int32Type},
};

use super::{kernel::Call, signature::Entry};
use crate::error::{PlanError, Result};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::strict("array_length(anyarray, integer) integer", |call| dimension(call, true)),
    Entry::strict("array_upper(anyarray, integer) integer", |call| dimension(call, true)),
    Entry::strict("array_lower(anyarray, integer) integer", |call| dimension(call, false)),
    Entry::strict("cardinality(anyarray) integer", |call| {
        let lists = call.lists(0)?;
        call.build::<Int32Type>(|row| Ok(lists.get(row).map(|list| elements(&list).len() as i32)))
    }),
    Entry::strict("array_ndims(anyarray) integer", |call| {
        let lists = call.lists(0)?;
        call.build::<Int32Type>(|row| Ok(lists.get(row).map(|list| sizes(&list).len() as i32).filter(|count| *count > 0)))
    }),
    Entry::strict("array_dims(anyarray) text", |call| {
        let lists = call.lists(0)?;
        call.build_texts(|row| {
            let text = |list: &ArrayRef| sizes(list).iter().map(|size| format!("[1:{size}]")).collect::<String>();
            Ok(lists.get(row).map(|list| text(&list)).filter(|text| !text.is_empty()))
        })
    }),
    Entry::strict("array_elements(anyarray) anyelement", flatten),
    Entry::strict("array_lt(anycompatiblearray, anycompatiblearray) boolean", |call| compare(call, Ordering::is_lt)),
    Entry::strict("array_le(anycompatiblearray, anycompatiblearray) boolean", |call| compare(call, Ordering::is_le)),
    Entry::strict("array_gt(anycompatiblearray, anycompatiblearray) boolean", |call| compare(call, Ordering::is_gt)),
    Entry::strict("array_ge(anycompatiblearray, anycompatiblearray) boolean", |call| compare(call, Ordering::is_ge)),
];

/// The size of each dimension, outermost first; none of an empty array.
pub(super) fn sizes(list: &ArrayRef) -> Vec<usize> {
    if list.is_empty() {
        return Vec::new();
    }
    let mut sizes = vec![list.len()];
    if let Some(inner) = list.as_list_opt::<i32>() {
        let first = (0..inner.len()).find(|place| inner.is_valid(*place));
        sizes.extend(first.map(|place| self::sizes(&inner.value(place))).unwrap_or_default());
    }
    sizes
}

/// The elements of all dimensions, the last one running fastest.
pub(super) fn elements(list: &ArrayRef) -> ArrayRef {
    match list.as_list_opt::<i32>() {
        Some(inner) => {
            let offsets = inner.value_offsets();
            let (start, end) = (offsets[0] as usize, offsets[inner.len()] as usize);
            elements(&inner.values().slice(start, end - start))
        }
        None => Arc::clone(list),
    }
}

fn dimension(call: &Call<'_>, upper: bool) -> Result<ArrayRef> {
    let (lists, dimensions) = (call.lists(0)?, call.values::<Int32Type>(1)?);
    call.build::<Int32Type>(|row| {
        let (Some(list), Some(dimension)) = (lists.get(row), dimensions.get(row)) else { return Ok(None) };
        let place = usize::try_from(dimension).ok().and_then(|dimension| dimension.checked_sub(1));
        let size = place.and_then(|place| sizes(&list).get(place).copied());
        Ok(size.map(|size| if upper { size as i32 } else { 1 }))
    })
}

/// An array of several dimensions with one less.
fn flatten(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let (DataType::List(field), Some(lists)) = (call.result, array.as_list_opt::<i32>()) else {
        return Err(PlanError::internal("an array of arrays was expected"));
    };
    let Some(inner) = lists.values().as_list_opt::<i32>() else { return Err(PlanError::internal("an array of arrays was expected")) };
    // An outer array goes from where its first inner one begins to where its last one ends.
    let ends = inner.value_offsets();
    let start = ends[lists.value_offsets()[0] as usize];
    let offsets: Vec<i32> = lists.value_offsets().iter().map(|place| ends[*place as usize] - start).collect();
    let length = offsets.last().copied().unwrap_or(0);
    let values = inner.values().slice(start as usize, length as usize);
    Ok(Arc::new(ListArray::new(Arc::clone(field), OffsetBuffer::new(offsets.into()), values, lists.nulls().cloned())))
}

/// Element by element; NULL is equal to NULL and greater than all others.
fn compare(call: &Call<'_>, wanted: fn(Ordering) -> bool) -> Result<ArrayRef> {
    let (left, right) = (call.array(0)?, call.array(1)?);
    let compare = make_comparator(&left, &right, SortOptions { descending: false, nulls_first: false })?;
    call.build_booleans(|row| Ok((left.is_valid(row) && right.is_valid(row)).then(|| wanted(compare(row, row)))))
}

/// The subscripts of a dimension; `None` where there is no such dimension.
pub(super) fn subscripts(list: &ArrayRef, dimension: i32) -> Option<usize> {
    sizes(list).get(usize::try_from(dimension).ok()?.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_arrays_are_joined() {
        let numbers = |rows: Vec<Vec<i32>>| {
            let rows = rows.into_iter().map(|row| Some(row.into_iter().map(Some).collect::<Vec<_>>()));
            ListArray::from_iter_primitive::<Int32Type, _, _>(rows)
        };
        let inner: ArrayRef = Arc::new(numbers(vec![vec![9], vec![1, 2], vec![3, 4]]).slice(1, 2));
        assert_eq!(sizes(&inner), [2, 2]);
        assert_eq!(elements(&inner).as_primitive::<Int32Type>().values(), &[1, 2, 3, 4]);
        assert_eq!(sizes(&(Arc::new(numbers(vec![])) as ArrayRef)), [0; 0]);
    }
}
