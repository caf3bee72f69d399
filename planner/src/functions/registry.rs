//! All functions and operators, by name.

use std::{collections::BTreeMap, sync::LazyLock};

use super::signature::{Entry, Overload};

/// The tables that make up the registry.
const TABLES: &[&[Entry]] = &[
    super::arithmetic::FUNCTIONS,
    super::bits::FUNCTIONS,
    super::comparison::FUNCTIONS,
    super::math::FUNCTIONS,
    super::text::FUNCTIONS,
    super::identifier::FUNCTIONS,
    super::pattern::FUNCTIONS,
    super::regex::FUNCTIONS,
    super::bytes::FUNCTIONS,
    super::interval::FUNCTIONS,
    super::datetime::FUNCTIONS,
    super::extract::FUNCTIONS,
    super::format::FUNCTIONS,
    super::array::FUNCTIONS,
    super::dimensions::FUNCTIONS,
    super::json::FUNCTIONS,
    super::conditional::FUNCTIONS,
    super::system::FUNCTIONS,
    super::sequence::FUNCTIONS,
];

static FUNCTIONS: LazyLock<BTreeMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut functions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for entry in TABLES.iter().copied().flatten() {
        let overload = Overload::of(entry);
        functions.entry(overload.signature.name).or_default().push(overload);
    }
    functions
});

/// The functions of a name, or the operators of a symbol.
pub(crate) fn overloads(name: &str) -> &'static [Overload] {
    FUNCTIONS.get(name).map_or(&[], Vec::as_slice)
}

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Overload> {
    FUNCTIONS.values().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_can_be_read() {
        assert!(FUNCTIONS.len() > 100);
        assert!(!overloads("lower").is_empty() && overloads("nosuch").is_empty());
    }
}
