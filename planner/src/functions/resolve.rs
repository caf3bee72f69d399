//! Which overload a call means, by Postgres' rules for functions and operators.

use super::signature::{Overload, Parameter};
use crate::types::{
    SqlType,
    coercion::{Category, CoercionContext, can_coerce, category, common_type, is_preferred},
    decimal::Digits,
};

/// The overload of a call and what its arguments have to become.
#[derive(Debug)]
pub(crate) struct Resolved<'a> {
    pub(crate) overload: &'a Overload,
    /// Types of the arguments; `None` takes the argument as it is.
    pub(crate) arguments: Vec<Option<SqlType>>,
    /// What the polymorphic parameters stand for.
    pub(crate) element: Option<SqlType>,
}

/// Why no overload was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// None fits.
    None,
    /// Several fit equally.
    Ambiguous,
}

/// The overload for arguments of these types. `operator`: an unknown operand is taken to be of the type of the other one, if that fits.
pub(crate) fn resolve<'a>(overloads: &'a [Overload], arguments: &[SqlType], operator: bool) -> Result<Resolved<'a>, Unresolved> {
    let sized: Vec<&Overload> = overloads.iter().filter(|overload| overload.takes(arguments.len())).collect();
    if let Some(found) = exact(&sized, arguments) {
        return Ok(found);
    }
    if operator && let [left, right] = arguments {
        let assumed = match (left, right) {
            (SqlType::Unknown, known) if *known != SqlType::Unknown => Some([known.clone(), known.clone()]),
            (known, SqlType::Unknown) if *known != SqlType::Unknown => Some([known.clone(), known.clone()]),
            _ => None,
        };
        if let Some(found) = assumed.and_then(|assumed| exact(&sized, &assumed)) {
            return Ok(found);
        }
    }
    let mut candidates: Vec<&Overload> = sized.into_iter().filter(|overload| fits(overload, arguments)).collect();
    narrow(&mut candidates, arguments);
    match candidates.as_slice() {
        [] => Err(Unresolved::None),
        [overload, ..] if candidates.len() == 1 => finish(overload, arguments).ok_or(Unresolved::None),
        _ => Err(Unresolved::Ambiguous),
    }
}

/// The overload whose parameters have the very types.
fn exact<'a>(candidates: &[&'a Overload], arguments: &[SqlType]) -> Option<Resolved<'a>> {
    let same = |overload: &&&Overload| {
        overload.signature.variadic.is_none()
            && overload
                .signature
                .parameters
                .iter()
                .zip(arguments)
                .all(|(parameter, argument)| matches!(parameter, Parameter::Type(t) if t.same(argument)))
    };
    candidates.iter().find(same).and_then(|overload| finish(overload, arguments))
}

fn fits(overload: &Overload, arguments: &[SqlType]) -> bool {
    let each = arguments.iter().enumerate().all(|(index, argument)| match overload.parameter(index) {
        Some(Parameter::Type(parameter)) => can_coerce(argument, parameter, CoercionContext::Implicit),
        Some(Parameter::AnyNonArray) => !matches!(argument, SqlType::Array(_)),
        Some(Parameter::AnyArray | Parameter::AnyCompatibleArray) => matches!(argument, SqlType::Array(_) | SqlType::Unknown),
        Some(_) => true,
        None => false,
    });
    each && element_of(overload, arguments).is_ok()
}

/// What the polymorphic parameters stand for; an error if the arguments do not agree.
fn element_of(overload: &Overload, arguments: &[SqlType]) -> Result<Option<SqlType>, ()> {
    let mut elements = Vec::new();
    let mut compatible = false;
    let mut polymorphic = false;
    for (index, argument) in arguments.iter().enumerate() {
        let parameter = overload.parameter(index).ok_or(())?;
        polymorphic |= parameter.is_polymorphic();
        match parameter {
            Parameter::AnyElement | Parameter::AnyCompatible => elements.push(argument.clone()),
            Parameter::AnyArray | Parameter::AnyCompatibleArray => {
                elements.push(argument.element().cloned().unwrap_or(SqlType::Unknown));
            }
            Parameter::Type(_) | Parameter::Any | Parameter::AnyNonArray => {}
        }
        compatible |= matches!(parameter, Parameter::AnyCompatible | Parameter::AnyCompatibleArray);
    }
    if !polymorphic {
        return Ok(None);
    }
    if compatible {
        // Compared with another text, a `char(n)` is one without its blanks.
        let compares = overload.signature.name.starts_with(['=', '<', '>']);
        if compares && elements.contains(&SqlType::Char) && elements.iter().any(|other| matches!(other, SqlType::Text | SqlType::Varchar)) {
            return Ok(Some(SqlType::Text));
        }
        return common_type(&elements).map(Some).ok_or(());
    }
    let mut known = elements.into_iter().filter(|element| *element != SqlType::Unknown);
    let Some(first) = known.next() else { return Ok(Some(SqlType::Text)) };
    let mut digits = Digits::of(&first);
    for other in known {
        if !other.same(&first) {
            return Err(());
        }
        digits = digits.union(Digits::of(&other));
    }
    Ok(Some(if first.is_numeric() { digits.sql_type() } else { first }))
}

fn finish<'a>(overload: &'a Overload, arguments: &[SqlType]) -> Option<Resolved<'a>> {
    let element = element_of(overload, arguments).ok()?;
    let target = |index: usize, argument: &SqlType| match overload.parameter(index) {
        Some(Parameter::Type(SqlType::Numeric(..))) if argument.is_integer() || argument.is_numeric() => {
            Some(Digits::of(argument).sql_type())
        }
        Some(Parameter::Type(parameter)) => Some(parameter.clone()),
        Some(Parameter::AnyElement | Parameter::AnyCompatible) => element.clone(),
        Some(Parameter::AnyArray | Parameter::AnyCompatibleArray) => element.clone().map(SqlType::array),
        // The one asks for the type itself, the other settles the one argument's by the other.
        Some(Parameter::Any) if matches!(overload.signature.name, "pg_typeof" | "nullif") => None,
        Some(Parameter::Any | Parameter::AnyNonArray) if *argument == SqlType::Unknown => Some(SqlType::Text),
        Some(Parameter::Any | Parameter::AnyNonArray) | None => None,
    };
    let targets = arguments.iter().enumerate().map(|(index, argument)| target(index, argument)).collect();
    Some(Resolved { overload, arguments: targets, element })
}

/// Leaves the best of the candidates.
fn narrow(candidates: &mut Vec<&Overload>, arguments: &[SqlType]) {
    let parameter_type = |overload: &Overload, index: usize| match overload.parameter(index) {
        Some(Parameter::Type(parameter)) => Some(parameter.clone()),
        _ => None,
    };
    let known = |index: &usize| arguments[*index] != SqlType::Unknown;
    keep_best(candidates, |overload| {
        let same = |index: &usize| parameter_type(overload, *index).is_some_and(|parameter| parameter.same(&arguments[*index]));
        (0..arguments.len()).filter(known).filter(same).count()
    });
    keep_best(candidates, |overload| {
        let good = |index: &usize| {
            parameter_type(overload, *index).is_some_and(|parameter| parameter.same(&arguments[*index]) || is_preferred(&parameter))
        };
        (0..arguments.len()).filter(known).filter(good).count()
    });
    if candidates.len() < 2 {
        return;
    }
    for index in (0..arguments.len()).filter(|index| !known(index)) {
        let categories: Vec<Option<Category>> =
            candidates.iter().map(|overload| parameter_type(overload, index).map(|parameter| category(&parameter))).collect();
        let chosen = if categories.contains(&Some(Category::String)) {
            Some(Category::String)
        } else {
            categories.first().copied().flatten().filter(|first| categories.iter().all(|other| *other == Some(*first)))
        };
        let Some(chosen) = chosen else { continue };
        candidates.retain(|overload| parameter_type(overload, index).is_some_and(|parameter| category(&parameter) == chosen));
        let preferred = |overload: &Overload| parameter_type(overload, index).is_some_and(|parameter| is_preferred(&parameter));
        if candidates.iter().any(|overload| preferred(overload)) {
            candidates.retain(|overload| preferred(overload));
        }
    }
    if candidates.len() > 1 {
        same_as_known(candidates, arguments);
    }
}

/// If all known arguments have one type, the unknown ones are taken to have it too, if exactly one candidate accepts that.
fn same_as_known(candidates: &mut Vec<&Overload>, arguments: &[SqlType]) {
    let mut known = arguments.iter().filter(|argument| **argument != SqlType::Unknown);
    let Some(first) = known.next() else { return };
    if !known.all(|other| other.same(first)) {
        return;
    }
    let assumed = vec![first.clone(); arguments.len()];
    let mut fitting = candidates.iter().copied().filter(|overload| fits(overload, &assumed));
    if let (Some(only), None) = (fitting.next(), fitting.next()) {
        *candidates = vec![only];
    }
}

fn keep_best(candidates: &mut Vec<&Overload>, score: impl Fn(&Overload) -> usize) {
    if let Some(best) = candidates.iter().map(|overload| score(overload)).max() {
        candidates.retain(|overload| score(overload) == best);
    }
}
