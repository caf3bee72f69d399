//! The functions that can be called, as `pg_proc` lists them.

use std::sync::LazyLock;

use super::{
    aggregate, registry, sequence,
    signature::{Body, Parameter, ResultType, Signature},
    window,
};
use crate::types::SqlType;

/// OIDs of functions are numbered from here, in the order of the list.
const FIRST_OID: i32 = 0x1800_0000;

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedKind {
    /// A function of values.
    Function,
    /// An aggregate.
    Aggregate,
    /// A function that needs OVER.
    Window,
    /// A function of a relation, in FROM, which only this server has.
    OfRelation,
}

/// A function.
#[derive(Clone, Debug)]
pub struct ListedFunction {
    /// Its OID.
    pub oid: i32,
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: ListedKind,
    /// Its parameters as `pg_get_function_arguments` writes them.
    pub arguments: String,
    /// Its result as `pg_get_function_result` writes it.
    pub result: String,
    /// OIDs of the parameters' types.
    pub argument_types: Vec<i32>,
    /// OID of the element type of a variadic parameter, 0 for none.
    pub variadic: i32,
    /// OID of the result's type.
    pub result_type: i32,
    /// Whether it returns rows.
    pub returns_set: bool,
    /// NULL if any argument is.
    pub strict: bool,
    /// Gives another value each time.
    pub volatile: bool,
}

impl ListedFunction {
    /// The schema it is in.
    pub fn schema(&self) -> &'static str {
        if self.kind == ListedKind::OfRelation { "millpond" } else { "pg_catalog" }
    }
}

/// Code of other functions under names of its own.
const HELPERS: &[&str] = &[
    "array_positions_of",
    "array_slice",
    "array_subscript",
    "concat_texts",
    "concat_texts_ws",
    "format_texts",
    "generate_series_list",
    "generate_subscripts_list",
    "json_elements",
    "json_elements_text",
    "json_keys",
    "jsonb_elements",
    "jsonb_elements_text",
    "jsonb_keys",
];

/// Functions over relations: name and parameters.
const OF_RELATIONS: &[(&str, &str)] = &[
    ("hop", "data relation, time descriptor, slide interval, size interval, \"offset\" interval DEFAULT '0'"),
    ("tumble", "data relation, time descriptor, size interval, \"offset\" interval DEFAULT '0'"),
];

/// OID of the pseudo-type `record`.
const RECORD: i32 = 2249;

static LISTED: LazyLock<Vec<ListedFunction>> = LazyLock::new(|| {
    let mut functions = Vec::new();
    for overload in registry::all() {
        let is_symbol = !overload.signature.name.starts_with(|first: char| first.is_ascii_alphabetic());
        if is_symbol || HELPERS.contains(&overload.signature.name) {
            continue;
        }
        let traits = match overload.body {
            Body::Kernel(_, traits) => (traits.strict, traits.volatile),
            Body::Rewrite(_) => (false, false),
        };
        functions.push(listed(&overload.signature, ListedKind::Function, traits));
    }
    for (texts, kind) in [(aggregate::SIGNATURES, ListedKind::Aggregate), (window::SIGNATURES, ListedKind::Window)] {
        functions.extend(texts.iter().map(|text| listed(&Signature::parse(text), kind, (false, false))));
    }
    functions.extend(OF_RELATIONS.iter().map(|(name, arguments)| ListedFunction {
        oid: 0,
        name,
        kind: ListedKind::OfRelation,
        arguments: (*arguments).to_owned(),
        result: "SETOF record".to_owned(),
        argument_types: Vec::new(),
        variadic: 0,
        result_type: RECORD,
        returns_set: true,
        strict: false,
        volatile: false,
    }));
    functions.sort_by(|left, right| (left.name, &left.arguments).cmp(&(right.name, &right.arguments)));
    functions.iter_mut().zip(FIRST_OID..).for_each(|(function, oid)| function.oid = oid);
    functions
});

/// All functions, by name.
pub fn functions() -> &'static [ListedFunction] {
    &LISTED
}

/// The function of an OID.
pub(crate) fn function(oid: i32) -> Option<&'static ListedFunction> {
    functions().get(usize::try_from(oid.checked_sub(FIRST_OID)?).ok()?)
}

fn listed(signature: &Signature, kind: ListedKind, (strict, volatile): (bool, bool)) -> ListedFunction {
    let name = signature.name;
    let mut parameters: Vec<(String, i32)> = signature.parameters.iter().map(of_parameter).collect();
    let mut variadic = 0;
    if let Some(rest) = &signature.variadic {
        let (text, oid) = of_variadic(rest);
        variadic = of_parameter(rest).1;
        parameters.push((format!("VARIADIC {text}"), oid));
    }
    let mut texts: Vec<String> = parameters.iter().map(|(text, _)| text.clone()).collect();
    if aggregate::collected::is_ordered_set(name)
        && let Some(ordered) = texts.pop()
    {
        // The last one is what WITHIN GROUP orders.
        let direct = if texts.is_empty() { String::new() } else { format!("{} ", texts.join(", ")) };
        texts = vec![format!("{direct}ORDER BY {ordered}")];
    }
    let columns = sequence::columns_of(name);
    let returns_set = kind == ListedKind::Function && (sequence::is_set_returning(name) || columns.is_some());
    let (result, result_type) = if columns.is_some() { ("record".to_owned(), RECORD) } else { of_result(&signature.result) };
    ListedFunction {
        oid: 0,
        name,
        kind,
        arguments: texts.join(", "),
        result: if returns_set { format!("SETOF {result}") } else { result },
        argument_types: parameters.into_iter().map(|(_, oid)| oid).collect(),
        variadic,
        result_type,
        returns_set,
        strict,
        volatile,
    }
}

fn of_type(sql_type: &SqlType) -> (String, i32) {
    (sql_type.name(), sql_type.oid())
}

fn pseudo(name: &str, oid: i32) -> (String, i32) {
    (name.to_owned(), oid)
}

fn of_parameter(parameter: &Parameter) -> (String, i32) {
    match parameter {
        Parameter::Type(sql_type) => of_type(sql_type),
        Parameter::Any => pseudo("\"any\"", 2276),
        Parameter::AnyNonArray => pseudo("anynonarray", 2776),
        Parameter::AnyElement => pseudo("anyelement", 2283),
        Parameter::AnyArray => pseudo("anyarray", 2277),
        Parameter::AnyCompatible => pseudo("anycompatible", 5077),
        Parameter::AnyCompatibleArray => pseudo("anycompatiblearray", 5078),
    }
}

/// As the array that Postgres makes of the arguments.
fn of_variadic(parameter: &Parameter) -> (String, i32) {
    match parameter {
        Parameter::Type(sql_type) => of_type(&SqlType::array(sql_type.clone())),
        Parameter::AnyElement => of_parameter(&Parameter::AnyArray),
        Parameter::AnyCompatible => of_parameter(&Parameter::AnyCompatibleArray),
        other => of_parameter(other),
    }
}

fn of_result(result: &ResultType) -> (String, i32) {
    match result {
        ResultType::Type(sql_type) => of_type(sql_type),
        ResultType::AnyElement => of_parameter(&Parameter::AnyElement),
        ResultType::AnyArray => of_parameter(&Parameter::AnyArray),
        ResultType::NumericSum
        | ResultType::NumericProduct
        | ResultType::NumericRemainder
        | ResultType::NumericUnion
        | ResultType::NumericFirst => of_type(&SqlType::NUMERIC),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> Vec<String> {
        let of_name = functions().iter().filter(|function| function.name == name);
        of_name.map(|function| format!("({}) {}", function.arguments, function.result)).collect()
    }

    #[test]
    fn functions_are_listed_as_postgres_lists_them() {
        assert_eq!(shown("lower"), ["(text) text"]);
        assert_eq!(shown("count"), ["() bigint", "(\"any\") bigint"]);
        assert_eq!(shown("mode"), ["(ORDER BY anyelement) anyelement"]);
        assert_eq!(shown("jsonb_each"), ["(jsonb) SETOF record"]);
        assert!(shown("generate_series").contains(&"(integer, integer) SETOF integer".to_owned()));
        assert!(shown("percentile_cont").contains(&"(double precision ORDER BY double precision) double precision".to_owned()));
        assert_eq!(shown("concat"), ["(VARIADIC \"any\") text"]);
        assert!(shown("generate_series_list").is_empty() && shown("+").is_empty());
    }

    #[test]
    fn numbers_lead_back_and_no_function_comes_twice() {
        for (function, next) in functions().iter().zip(&functions()[1..]) {
            assert_eq!(super::function(function.oid).map(|found| found.name), Some(function.name));
            assert!((function.name, &function.arguments) != (next.name, &next.arguments), "{function:?}");
        }
        assert!(super::function(FIRST_OID + functions().len() as i32).is_none() && super::function(870).is_none());
    }

    #[test]
    fn listed_aggregates_are_those_that_there_are() {
        for text in aggregate::SIGNATURES {
            let Signature { name, parameters, result, .. } = Signature::parse(text);
            assert!(aggregate::is_aggregate(name), "{text}");
            let of_type = |parameter: &Parameter| if let Parameter::Type(sql_type) = parameter { Some(sql_type.clone()) } else { None };
            let types: Option<Vec<SqlType>> = parameters.iter().map(of_type).collect();
            let chosen = types.and_then(|types| aggregate::choose(name, &types));
            if let (Some(chosen), ResultType::Type(result)) = (chosen, result) {
                assert!(chosen.result.same(&result), "{text}: {}", chosen.result.name());
            }
        }
        for name in aggregate::NAMES {
            assert!(functions().iter().any(|function| function.name == *name && function.kind == ListedKind::Aggregate), "{name}");
        }
        assert!(window::SIGNATURES.iter().all(|text| window::is_window_function(Signature::parse(text).name)));
    }

    #[test]
    fn helpers_are_functions() {
        for name in HELPERS {
            assert!(!registry::overloads(name).is_empty(), "{name}");
        }
    }
}
