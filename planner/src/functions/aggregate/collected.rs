//! Aggregates that are functions of the list of their values, in its order: `string_agg`, the JSON aggregates, percentiles and `mode`. They are
//! `array_agg` with a function of our own on top, so that a view maintains them and any query may order or filter what goes in.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, ListArray, UInt64Array, make_comparator},
    compute::{SortOptions, take},
    datatypes::{DataType, Float64Type, IntervalMonthDayNanoType},
};

use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result, sqlstate},
    functions::{
        interval,
        json::{JsonTexts, json_key_texts},
        kernel::{Call, Evaluate, Kernel, Traits},
        text::json_string,
    },
    pg_text,
    types::SqlType,
};

/// Makes the result of the list.
type Finish = fn(&Binder<'_>, Typed, Vec<Typed>) -> Result<Typed>;

/// An aggregate over a list.
pub(crate) struct Collected {
    /// What is put into the list for each row.
    pub(crate) element: Typed,
    /// Arguments that belong to the whole list.
    direct: Vec<Typed>,
    finish: Finish,
}

impl Collected {
    fn new(element: Typed, direct: Vec<Typed>, finish: Finish) -> Self {
        Self { element, direct, finish }
    }

    /// The aggregate's value, made of the list's.
    pub(crate) fn finish(self, binder: &Binder<'_>, list: Typed) -> Result<Typed> {
        (self.finish)(binder, list, self.direct)
    }
}

/// Names of these aggregates but those with WITHIN GROUP.
pub(crate) fn is_collected(name: &str) -> bool {
    matches!(name, "string_agg" | "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg")
}

/// Aggregates that need WITHIN GROUP.
pub(crate) fn is_ordered_set(name: &str) -> bool {
    matches!(name, "percentile_cont" | "percentile_disc" | "mode")
}

/// The aggregate of a name over arguments; `None` if there is none for their types.
pub(crate) fn collect(binder: &Binder<'_>, name: &str, values: &[Typed]) -> Result<Option<Collected>> {
    let known = |value: &Typed| if value.is_unknown() { binder.implicit(value.clone(), &SqlType::Text) } else { Ok(value.clone()) };
    Ok(Some(match (name, values) {
        ("string_agg", [text, separator]) if is_text(text) && is_text(separator) => {
            let (text, separator) = (binder.implicit(text.clone(), &SqlType::Text)?, binder.implicit(separator.clone(), &SqlType::Text)?);
            if separator.constant().is_some() {
                Collected::new(text, vec![separator], |binder, list, mut direct| {
                    direct.insert(0, list);
                    Ok(call(binder, "join_texts", Traits::NULLS, join_texts, direct, SqlType::Text))
                })
            } else {
                let element = call(binder, "separated_text", Traits::NULLS, separated_text, vec![text, separator], SqlType::Text);
                Collected::new(element, vec![], |binder, list, _| {
                    Ok(call(binder, "join_separated_texts", Traits::STRICT, join_separated, vec![list], SqlType::Text))
                })
            }
        }
        ("json_agg", [value]) => {
            let value = known(value)?;
            let rows = matches!(value.sql_type, SqlType::Record(_) | SqlType::Array(_));
            let finish: Finish = if rows { finish_rows } else { finish_json };
            Collected::new(plain_element(binder, value)?, vec![], finish)
        }
        ("jsonb_agg", [value]) => Collected::new(plain_element(binder, known(value)?)?, vec![], |binder, list, _| {
            Ok(call(binder, "jsonb_of_list", Traits::LOCAL, jsonb_of_list, vec![list], SqlType::Jsonb))
        }),
        ("json_object_agg" | "jsonb_object_agg", [key, value]) => {
            let arguments = vec![known(key)?, known(value)?];
            let element = call(binder, "json_member", Traits::LOCAL_NULLS, member, arguments, SqlType::Json);
            let finish: Finish = if name == "json_object_agg" { finish_object } else { finish_object_b };
            Collected::new(element, vec![], finish)
        }
        _ => return Ok(None),
    }))
}

/// The aggregate of a name with WITHIN GROUP: `direct` are the arguments in its parentheses, `value` is what is ordered.
pub(crate) fn collect_ordered(binder: &Binder<'_>, name: &str, direct: Vec<Typed>, value: Typed) -> Result<Option<Collected>> {
    let fraction = |binder: &Binder<'_>, direct: Vec<Typed>| -> Result<Option<Vec<Typed>>> {
        let [fraction] = direct.as_slice() else { return Ok(None) };
        let wanted = match &fraction.sql_type {
            SqlType::Array(_) => SqlType::array(SqlType::Double),
            SqlType::Unknown => SqlType::Double,
            number if number.is_number() => SqlType::Double,
            _ => return Ok(None),
        };
        Ok(Some(vec![binder.implicit(fraction.clone(), &wanted)?]))
    };
    Ok(match name {
        "percentile_cont" => {
            let wanted = if value.sql_type == SqlType::Interval { SqlType::Interval } else { SqlType::Double };
            if wanted == SqlType::Double && !value.sql_type.is_number() {
                return Ok(None);
            }
            let value = binder.implicit(value, &wanted)?;
            fraction(binder, direct)?
                .map(|direct| Collected::new(value, direct, |binder, list, direct| percentile(binder, list, direct, true)))
        }
        "percentile_disc" => fraction(binder, direct)?
            .map(|direct| Collected::new(value, direct, |binder, list, direct| percentile(binder, list, direct, false))),
        "mode" if direct.is_empty() => Some(Collected::new(value, vec![], |binder, list, _| {
            let element = list.sql_type.element().cloned().unwrap_or(SqlType::Text);
            Ok(call(binder, "most_frequent", Traits::STRICT, most_frequent, vec![list], element))
        })),
        _ => None,
    })
}

fn is_text(value: &Typed) -> bool {
    value.sql_type.is_text() || value.is_unknown()
}

/// Arrays and records become JSON before they are put into a list, which cannot hold them.
fn plain_element(binder: &Binder<'_>, value: Typed) -> Result<Typed> {
    match value.sql_type {
        SqlType::Array(_) | SqlType::Record(_) => binder.call("to_json", vec![value], sqlparser::tokenizer::Span::empty()),
        _ => Ok(value),
    }
}

fn call(binder: &Binder<'_>, name: &'static str, traits: Traits, evaluate: Evaluate, arguments: Vec<Typed>, result: SqlType) -> Typed {
    let types = arguments.iter().map(|argument| argument.sql_type.arrow()).collect();
    let kernel = Kernel { name, operator: None, evaluate, traits };
    let expressions = arguments.into_iter().map(|argument| argument.expr).collect();
    Typed::new(kernel.call(expressions, types, result.arrow(), &binder.environment), result)
}

fn finish_json(binder: &Binder<'_>, list: Typed, _: Vec<Typed>) -> Result<Typed> {
    Ok(call(binder, "json_of_list", Traits::LOCAL, |call| json_of_list(call, ", "), vec![list], SqlType::Json))
}

fn finish_rows(binder: &Binder<'_>, list: Typed, _: Vec<Typed>) -> Result<Typed> {
    Ok(call(binder, "json_of_rows", Traits::LOCAL, |call| json_of_list(call, ", \n "), vec![list], SqlType::Json))
}

fn finish_object(binder: &Binder<'_>, list: Typed, _: Vec<Typed>) -> Result<Typed> {
    Ok(call(binder, "json_of_members", Traits::STRICT, object, vec![list], SqlType::Json))
}

fn finish_object_b(binder: &Binder<'_>, list: Typed, _: Vec<Typed>) -> Result<Typed> {
    Ok(call(binder, "jsonb_of_members", Traits::STRICT, object_b, vec![list], SqlType::Jsonb))
}

fn percentile(binder: &Binder<'_>, list: Typed, mut direct: Vec<Typed>, continuous: bool) -> Result<Typed> {
    let element = list.sql_type.element().cloned().unwrap_or(SqlType::Double);
    let several = direct.first().is_some_and(|fraction| matches!(fraction.sql_type, SqlType::Array(_)));
    let result = if several { SqlType::array(element.clone()) } else { element.clone() };
    direct.insert(0, list);
    let (name, evaluate): (_, Evaluate) = match (continuous, &element) {
        (false, _) => ("percentile_disc_of", discrete),
        (true, SqlType::Interval) => ("percentile_cont_of", continuous_interval),
        (true, _) => ("percentile_cont_of", continuous_double),
    };
    Ok(call(binder, name, Traits::STRICT, evaluate, direct, result))
}

/// The values of a list that are texts and not NULL, joined; NULL if there are none.
fn join_texts(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, separators) = (call.lists(0)?, call.texts(1)?);
    call.build_texts(|row| {
        let Some(list) = lists.get(row) else { return Ok(None) };
        let texts: Vec<&str> = list.as_string_view().iter().flatten().collect();
        Ok((!texts.is_empty()).then(|| texts.join(separators.get(row).unwrap_or_default())))
    })
}

/// A text behind its separator, which is told apart by its length.
fn separated_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, separators) = (call.texts(0)?, call.texts(1)?);
    call.build_texts(|row| {
        let separator = separators.get(row).unwrap_or_default();
        Ok(texts.get(row).map(|text| format!("{}:{separator}{text}", separator.len())))
    })
}

fn join_separated(call: &Call<'_>) -> Result<ArrayRef> {
    let lists = call.lists(0)?;
    call.build_texts(|row| {
        let Some(list) = lists.get(row) else { return Ok(None) };
        let mut joined: Option<String> = None;
        for entry in list.as_string_view().iter().flatten() {
            let damaged = || PlanError::internal("a text without its separator");
            let (length, rest) = entry.split_once(':').ok_or_else(damaged)?;
            let length: usize = length.parse().map_err(|_| damaged())?;
            match &mut joined {
                Some(joined) => joined.push_str(rest),
                None => joined = Some(rest.get(length..).ok_or_else(damaged)?.to_owned()),
            }
        }
        Ok(joined)
    })
}

/// All lists of an argument as JSON arrays.
fn json_lists(call: &Call<'_>, separator: &str) -> Result<Vec<Option<String>>> {
    let array = call.array(0)?;
    let lists: &ListArray = array.as_list::<i32>();
    let texts = JsonTexts::of(lists.values(), &call.environment().text)?;
    let one = |row: usize| {
        let range = crate::functions::array::range(lists, row)?;
        let items: Vec<&str> = (range.0..range.1).map(|at| texts.get(at)).collect();
        Some(format!("[{}]", items.join(separator)))
    };
    Ok((0..call.rows).map(one).collect())
}

fn json_of_list(call: &Call<'_>, separator: &str) -> Result<ArrayRef> {
    let texts = json_lists(call, separator)?;
    call.build_jsons(|row| Ok(texts[row].as_deref()))
}

fn jsonb_of_list(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = json_lists(call, ", ")?;
    call.build_jsons(|row| texts[row].as_deref().map(|text| Ok(pg_text::normalize_json(text)?)).transpose())
}

/// `"key" : value`; NULL if the key is.
fn member(call: &Call<'_>) -> Result<ArrayRef> {
    let settings = &call.environment().text;
    let keys = json_key_texts(&call.array(0)?, settings)?;
    let values = JsonTexts::of(&call.array(1)?, settings)?;
    call.build_jsons(|row| Ok(keys.is_valid(row).then(|| format!("{} : {}", json_string(keys.value(row)), values.get(row)))))
}

fn objects(call: &Call<'_>) -> Result<Vec<Option<String>>> {
    let lists = call.lists(0)?;
    let one = |row: usize| {
        let Some(list) = lists.get(row) else { return Ok(None) };
        if list.null_count() > 0 {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "field name must not be null"));
        }
        let members: Vec<&str> = list.as_string::<i64>().iter().flatten().collect();
        Ok(Some(format!("{{ {} }}", members.join(", "))))
    };
    (0..call.rows).map(one).collect()
}

fn object(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = objects(call)?;
    call.build_jsons(|row| Ok(texts[row].as_deref()))
}

fn object_b(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = objects(call)?;
    call.build_jsons(|row| texts[row].as_deref().map(|text| Ok(pg_text::normalize_json(text)?)).transpose())
}

/// Places of the values of a sorted list that are not NULL.
fn present(lists: &ListArray, row: usize) -> Vec<usize> {
    let Some((start, end)) = crate::functions::array::range(lists, row) else { return Vec::new() };
    (start..end).filter(|at| lists.values().is_valid(*at)).collect()
}

/// The fractions asked for in a row: one, or those of an array.
fn fractions(call: &Call<'_>) -> Result<Vec<Vec<Option<f64>>>> {
    let array = call.array(1)?;
    let one = |row: usize| -> Vec<Option<f64>> {
        match array.as_list_opt::<i32>() {
            Some(lists) => lists.value(row).as_primitive::<Float64Type>().iter().collect(),
            None => vec![array.is_valid(row).then(|| array.as_primitive::<Float64Type>().value(row))],
        }
    };
    let all: Vec<_> = (0..call.rows).map(one).collect();
    match all.iter().flatten().flatten().find(|fraction| !(0.0..=1.0).contains(*fraction)) {
        Some(fraction) => {
            let message = format!("percentile value {fraction} is not between 0 and 1");
            Err(PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, message))
        }
        None => Ok(all),
    }
}

/// Values of each row as the result: one, or an array of them; no values at all are NULL.
fn shaped(call: &Call<'_>, values: ArrayRef, lengths: Vec<Option<usize>>) -> Result<ArrayRef> {
    let DataType::List(field) = call.result else { return Ok(values) };
    if field.data_type() != values.data_type() {
        return Ok(values);
    }
    let valid: Vec<bool> = lengths.iter().map(Option::is_some).collect();
    let offsets = arrow::buffer::OffsetBuffer::from_lengths(lengths.into_iter().map(|length| length.unwrap_or(0)));
    Ok(Arc::new(ListArray::try_new(Arc::clone(field), offsets, values, Some(valid.into()))?))
}

/// Places of elements.
type Chosen = Vec<Option<u64>>;

/// How many values each row has.
type Lengths = Vec<Option<usize>>;

/// For each wanted value the place of the element, if any; and how many values each row has.
fn places(call: &Call<'_>, place: impl Fn(&[usize], f64) -> usize) -> Result<(ListArray, Chosen, Lengths)> {
    let array = call.array(0)?;
    let lists = array.as_list::<i32>().clone();
    let several = call.argument_type(1).is_nested();
    let (mut chosen, mut lengths) = (Vec::new(), Vec::new());
    for (row, fractions) in fractions(call)?.into_iter().enumerate() {
        let present = present(&lists, row);
        if several && present.is_empty() {
            lengths.push(None);
            continue;
        }
        lengths.push(Some(fractions.len()));
        let at = |fraction: Option<f64>| fraction.filter(|_| !present.is_empty()).map(|fraction| place(&present, fraction) as u64);
        chosen.extend(fractions.into_iter().map(at));
    }
    Ok((lists, chosen, lengths))
}

/// The first value whose place in the order is at or beyond the fraction.
fn discrete(call: &Call<'_>) -> Result<ArrayRef> {
    let nth = |present: &[usize], fraction: f64| {
        let number = (fraction * present.len() as f64).ceil() as usize;
        present[number.clamp(1, present.len()) - 1]
    };
    let (lists, chosen, lengths) = places(call, nth)?;
    shaped(call, take(lists.values(), &UInt64Array::from(chosen), None)?, lengths)
}

/// For each wanted value its two neighbours and how far it is from the first to the second.
type Neighbours = (ListArray, Vec<Option<(usize, usize, f64)>>, Vec<Option<usize>>);

fn neighbours(call: &Call<'_>) -> Result<Neighbours> {
    let array = call.array(0)?;
    let lists = array.as_list::<i32>().clone();
    let several = call.argument_type(1).is_nested();
    let (mut found, mut lengths) = (Vec::new(), Vec::new());
    for (row, fractions) in fractions(call)?.into_iter().enumerate() {
        let present = present(&lists, row);
        if several && present.is_empty() {
            lengths.push(None);
            continue;
        }
        lengths.push(Some(fractions.len()));
        for fraction in fractions {
            found.push(fraction.filter(|_| !present.is_empty()).map(|fraction| {
                let exact = fraction * (present.len() - 1) as f64;
                let (first, second) = (exact.floor() as usize, exact.ceil() as usize);
                (present[first], present[second], exact - first as f64)
            }));
        }
    }
    Ok((lists, found, lengths))
}

fn continuous_double(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, found, lengths) = neighbours(call)?;
    let values = lists.values().as_primitive::<Float64Type>();
    let between = |(first, second, share): (usize, usize, f64)| {
        let (first, second) = (values.value(first), values.value(second));
        if share == 0.0 { first } else { first + share * (second - first) }
    };
    let results: arrow::array::Float64Array = found.into_iter().map(|found| found.map(between)).collect();
    shaped(call, Arc::new(results), lengths)
}

fn continuous_interval(call: &Call<'_>) -> Result<ArrayRef> {
    let (lists, found, lengths) = neighbours(call)?;
    let values = lists.values().as_primitive::<IntervalMonthDayNanoType>();
    let between = |(first, second, share): (usize, usize, f64)| {
        let (first, second) = (values.value(first), values.value(second));
        let way = interval::multiply(interval::add(second, first, -1)?, share, false)?;
        interval::add(first, way, 1)
    };
    let results = found.into_iter().map(|found| found.map(between).transpose()).collect::<Result<Vec<_>>>()?;
    let results = arrow::array::PrimitiveArray::<IntervalMonthDayNanoType>::from_iter(results);
    shaped(call, Arc::new(results), lengths)
}

/// The value that comes most often in a sorted list, the first of several.
fn most_frequent(call: &Call<'_>) -> Result<ArrayRef> {
    let array = call.array(0)?;
    let lists = array.as_list::<i32>();
    let compare = make_comparator(lists.values(), lists.values(), SortOptions::default())?;
    let best = |row: usize| {
        let present = present(lists, row);
        let mut best: Option<(usize, usize)> = None;
        let mut start = 0;
        for end in 1..=present.len() {
            if end < present.len() && compare(present[start], present[end]).is_eq() {
                continue;
            }
            if best.is_none_or(|(_, length)| end - start > length) {
                best = Some((present[start], end - start));
            }
            start = end;
        }
        best.map(|(at, _)| at as u64)
    };
    Ok(take(lists.values(), &UInt64Array::from_iter((0..call.rows).map(best)), None)?)
}
