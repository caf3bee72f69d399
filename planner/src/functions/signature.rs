//! Signatures of functions, written as text: `lower(text) text`, `concat(variadic any) text`, `array_append(anyarray, anyelement) anyarray`.
//!
//! Result types of numerics follow the operands: `numeric_sum`, `numeric_product`, `numeric_remainder`, `numeric_union` (wide enough for all),
//! `numeric_first` (digits of the first argument), `numeric` (no declared precision), `numeric(p,s)`.

use super::kernel::{Evaluate, Kernel, Traits};
use crate::{
    bind::{Binder, Typed},
    error::Result,
    types::{SqlType, decimal::Digits, name::parse_type_name},
};

/// The type of a parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Parameter {
    /// This type; a numeric of any digits is taken as it is.
    Type(SqlType),
    /// Any type at all.
    Any,
    /// Any type but an array.
    AnyNonArray,
    /// The type all `anyelement` of the call have, and the element of its `anyarray`.
    AnyElement,
    /// An array of it.
    AnyArray,
    /// As `anyelement`, but the arguments are brought to a common type first.
    AnyCompatible,
    /// An array of that.
    AnyCompatibleArray,
}

impl Parameter {
    pub(crate) fn is_polymorphic(&self) -> bool {
        !matches!(self, Self::Type(_) | Self::Any | Self::AnyNonArray)
    }
}

/// The type of a result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ResultType {
    Type(SqlType),
    AnyElement,
    AnyArray,
    NumericSum,
    NumericProduct,
    NumericRemainder,
    NumericUnion,
    NumericFirst,
}

impl ResultType {
    /// The type for arguments of these types, `element` being what the polymorphic ones stand for.
    pub(crate) fn resolve(&self, arguments: &[SqlType], element: Option<&SqlType>) -> SqlType {
        let fold = |combine: fn(Digits, Digits) -> Digits| {
            let digits = arguments.iter().map(Digits::of).reduce(combine).unwrap_or(Digits::FREE);
            digits.sql_type()
        };
        match self {
            Self::Type(sql_type) => sql_type.clone(),
            Self::AnyElement => element.cloned().unwrap_or(SqlType::Text),
            Self::AnyArray => SqlType::array(element.cloned().unwrap_or(SqlType::Text)),
            Self::NumericSum => fold(Digits::sum),
            Self::NumericProduct => fold(Digits::product),
            Self::NumericRemainder => fold(Digits::remainder),
            Self::NumericUnion => fold(Digits::union),
            Self::NumericFirst => arguments.first().map_or(SqlType::NUMERIC, |first| Digits::of(first).sql_type()),
        }
    }
}

/// Makes an expression of a call whose arguments have the types of the signature.
pub(crate) type Rewrite = fn(&Binder<'_>, Vec<Typed>) -> Result<Typed>;

/// What computes a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    /// Code over columns.
    Kernel(Evaluate, Traits),
    /// Another expression.
    Rewrite(Rewrite),
}

/// A row of a table of functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// As the module's text says.
    pub(crate) signature: &'static str,
    /// The name of the code, if the function is named by a symbol or shares its name with other code.
    pub(crate) internal: &'static str,
    pub(crate) body: Body,
}

impl Entry {
    /// A function of its arguments alone, NULL if any of them is.
    pub(crate) const fn strict(signature: &'static str, evaluate: Evaluate) -> Self {
        Self { signature, internal: "", body: Body::Kernel(evaluate, Traits::STRICT) }
    }

    /// A function with other traits.
    pub(crate) const fn kernel(signature: &'static str, traits: Traits, evaluate: Evaluate) -> Self {
        Self { signature, internal: "", body: Body::Kernel(evaluate, traits) }
    }

    /// An operator that is NULL if any operand is.
    pub(crate) const fn operator(signature: &'static str, internal: &'static str, evaluate: Evaluate) -> Self {
        Self { signature, internal, body: Body::Kernel(evaluate, Traits::STRICT) }
    }

    /// A function that is another expression.
    pub(crate) const fn rewrite(signature: &'static str, rewrite: Rewrite) -> Self {
        Self { signature, internal: "", body: Body::Rewrite(rewrite) }
    }

    /// The same with the name of its code.
    pub(crate) const fn named(mut self, internal: &'static str) -> Self {
        self.internal = internal;
        self
    }
}

/// A signature that has been read.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) name: &'static str,
    pub(crate) parameters: Vec<Parameter>,
    /// Further arguments, any number, of this type.
    pub(crate) variadic: Option<Parameter>,
    pub(crate) result: ResultType,
}

impl Signature {
    /// Reads a signature.
    ///
    /// # Panics
    /// If it cannot be read, which the tests of the registry and of the listing find.
    pub(crate) fn parse(text: &'static str) -> Self {
        let open = text.find('(').unwrap_or_else(|| panic!("no parameters: {text}"));
        let close = text.rfind(") ").unwrap_or_else(|| panic!("no result: {text}"));
        let (name, inside, result) = (text[..open].trim(), &text[open + 1..close], text[close + 2..].trim());
        let (mut parameters, mut variadic) = (Vec::new(), None);
        for part in split(inside) {
            match part.strip_prefix("variadic ") {
                Some(rest) => variadic = Some(parameter(rest)),
                None => parameters.push(parameter(part)),
            }
        }
        Self { name, parameters, variadic, result: result_type(result) }
    }
}

/// A function that can be called.
#[derive(Clone, Debug)]
pub(crate) struct Overload {
    pub(crate) signature: Signature,
    pub(crate) internal: &'static str,
    pub(crate) body: Body,
}

impl Overload {
    /// The overload of an entry.
    pub(crate) fn of(entry: &Entry) -> Self {
        let signature = Signature::parse(entry.signature);
        let internal = if entry.internal.is_empty() { signature.name } else { entry.internal };
        Self { signature, internal, body: entry.body }
    }

    /// The kernel, if code computes it.
    pub(crate) fn kernel(&self) -> Option<Kernel> {
        match self.body {
            Body::Kernel(evaluate, traits) => {
                let operator = (!self.signature.name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_'))
                    .then_some(self.signature.name);
                Some(Kernel { name: self.internal, operator, evaluate, traits })
            }
            Body::Rewrite(_) => None,
        }
    }

    /// The type of the parameter at a place.
    pub(crate) fn parameter(&self, index: usize) -> Option<&Parameter> {
        self.signature.parameters.get(index).or(self.signature.variadic.as_ref())
    }

    /// Whether it can take so many arguments.
    pub(crate) fn takes(&self, count: usize) -> bool {
        match self.signature.variadic {
            None => count == self.signature.parameters.len(),
            Some(_) => count >= self.signature.parameters.len(),
        }
    }
}

/// Splits at commas outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn sql_type(text: &str) -> SqlType {
    parse_type_name(text).unwrap_or_else(|error| panic!("{text}: {error}")).0
}

fn parameter(text: &str) -> Parameter {
    match text {
        "any" => Parameter::Any,
        "anynonarray" => Parameter::AnyNonArray,
        "anyelement" => Parameter::AnyElement,
        "anyarray" => Parameter::AnyArray,
        "anycompatible" => Parameter::AnyCompatible,
        "anycompatiblearray" => Parameter::AnyCompatibleArray,
        _ => Parameter::Type(sql_type(text)),
    }
}

fn result_type(text: &str) -> ResultType {
    match text {
        "anyelement" | "anycompatible" => ResultType::AnyElement,
        "anyarray" | "anycompatiblearray" => ResultType::AnyArray,
        "numeric_sum" => ResultType::NumericSum,
        "numeric_product" => ResultType::NumericProduct,
        "numeric_remainder" => ResultType::NumericRemainder,
        "numeric_union" => ResultType::NumericUnion,
        "numeric_first" => ResultType::NumericFirst,
        _ => ResultType::Type(sql_type(text)),
    }
}
