//! Where a text names objects, and the text with the names written out.
//!
//! Stored queries name every relation with its schema, also those that a `regclass` constant names by a text, so that they do not depend on a search
//! path, and can be rewritten when a relation is renamed.

use sqlparser::tokenizer::{Location, Span};

use crate::{
    catalog::{Catalog, name::quoted},
    error::{PlanError, Result},
};

/// A place where a relation is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// The relation.
    pub(super) id: u64,
    /// The name.
    pub(super) span: Span,
    /// How it is written.
    pub(super) form: Form,
}

/// How a relation is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// By a name.
    Name {
        /// What columns are qualified with, if it has no alias of its own and one may follow.
        implied_alias: Option<String>,
    },
    /// By the text of a `regclass` constant.
    Text,
}

/// The text with every reference written with schema and name as `catalog` has them, and aliases that keep qualified columns right.
/// Positions of references count from `origin`, where the text starts in its script.
///
/// # Errors
/// XX000 if a reference is not in the text.
pub(super) fn write_out(text: &str, origin: Location, references: &[Reference], catalog: &Catalog) -> Result<String> {
    let mut places = Vec::with_capacity(references.len());
    for reference in references {
        let start = offset_in(text, origin, reference.span.start).ok_or_else(outside)?;
        let end = offset_in(text, origin, reference.span.end).ok_or_else(outside)?;
        let object = catalog.get(reference.id).ok_or_else(|| PlanError::internal("a reference to an object that is not there"))?;
        let name = format!("{}.{}", quoted(catalog.schema_name(object)), quoted(&object.name));
        let written = match &reference.form {
            Form::Name { implied_alias: Some(alias) } if *alias != object.name => format!("{name} AS {}", quoted(alias)),
            Form::Name { .. } => name,
            Form::Text => format!("'{}'", name.replace('\'', "''")),
        };
        places.push((start, end, written));
    }
    places.sort();
    places.dedup();
    let mut written = String::with_capacity(text.len() + 16 * places.len());
    let mut at = 0;
    for (start, end, name) in places {
        if start < at {
            continue;
        }
        written.push_str(&text[at..start]);
        written.push_str(&name);
        at = end;
    }
    written.push_str(&text[at..]);
    Ok(written)
}

fn outside() -> PlanError {
    PlanError::internal("a reference outside of its text")
}

/// The byte of a location in a text that starts at `origin`.
fn offset_in(text: &str, origin: Location, location: Location) -> Option<usize> {
    let line = location.line.checked_sub(origin.line)?;
    let first_column = if line == 0 { origin.column } else { 1 };
    let line_start = match usize::try_from(line).ok()? {
        0 => 0,
        line => text.match_indices('\n').nth(line - 1)?.0 + 1,
    };
    let characters = usize::try_from(location.column.checked_sub(first_column)?).ok()?;
    let rest = &text[line_start..];
    let offset = rest.char_indices().map(|(offset, _)| offset).chain([rest.len()]).nth(characters)?;
    Some(line_start + offset)
}
