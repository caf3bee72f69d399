//! Values as a column with a declared length takes them.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use millpond_planner::types::{SqlType, modifier};

use crate::error::{Result, SqlError};

/// Cuts or pads strings to the length of `varchar(n)` and `char(n)`; only blanks may be cut.
///
/// # Errors
/// 22001 for a string that is too long.
pub(crate) fn fit(values: ArrayRef, sql_type: &SqlType, type_modifier: i32) -> Result<ArrayRef> {
    let Some(length) = modifier::length(type_modifier).map(|length| length as usize) else { return Ok(values) };
    let pads = match sql_type {
        SqlType::Varchar => false,
        SqlType::Char => true,
        _ => return Ok(values),
    };
    let strings = values.as_string_view();
    let fits = |text: &str| {
        // Bytes first: a short string of any characters needs no counting.
        text.len() <= length || text.chars().count() <= length
    };
    if !pads && strings.iter().flatten().all(fits) {
        return Ok(values);
    }
    let mut fitted = StringViewBuilder::with_capacity(strings.len());
    for text in strings {
        let Some(text) = text else {
            fitted.append_null();
            continue;
        };
        let end = text.char_indices().nth(length).map_or(text.len(), |(end, _)| end);
        if !text[end..].trim_start_matches(' ').is_empty() {
            let name = sql_type.name_with(type_modifier);
            return Err(SqlError::new("22001", format!("value too long for type {name}")));
        }
        if pads {
            let missing = length.saturating_sub(text[..end].chars().count());
            fitted.append_value(format!("{}{}", &text[..end], " ".repeat(missing)));
        } else {
            fitted.append_value(&text[..end]);
        }
    }
    Ok(Arc::new(fitted.finish()))
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    #[test]
    fn only_blanks_are_cut() {
        let values = |texts: &[&str]| Arc::new(StringViewArray::from(texts.to_vec())) as ArrayRef;
        let limit = modifier::of_length(4);
        let fitted = fit(values(&["abcd  ", "", "naïv"]), &SqlType::Varchar, limit).unwrap();
        assert_eq!(fitted.as_string_view().iter().flatten().collect::<Vec<_>>(), ["abcd", "", "naïv"]);
        let error = fit(values(&["abcde"]), &SqlType::Varchar, limit).unwrap_err();
        assert_eq!((error.sqlstate.as_str(), error.message.as_str()), ("22001", "value too long for type character varying(4)"));
        let padded = fit(values(&["a"]), &SqlType::Char, limit).unwrap();
        assert_eq!(padded.as_string_view().value(0), "a   ");
    }
}
