//! The options of a source or sink as the user wrote them, taken one by one by the connector that understands them. What nobody took is
//! unknown, and the error says which names the connector knows.

use std::{fmt::Display, str::FromStr};

use crate::error::{EngineError, Result};

/// SQLSTATE `invalid_parameter_value`, which all errors of options carry.
const INVALID_PARAMETER_VALUE: &str = "22023";

/// Options by name, each taken at most once.
#[derive(Debug)]
pub(crate) struct OptionList {
    context: String,
    entries: Vec<Entry>,
    known: Vec<&'static str>,
}

#[derive(Debug)]
struct Entry {
    name: String,
    value: String,
    taken: bool,
}

impl OptionList {
    /// Options that are those of `context` (`connector "file"`, shown in errors). Names are compared in lower case; a name that is
    /// given twice is an error.
    pub(crate) fn new(context: impl Into<String>, options: &[(String, String)]) -> Result<Self> {
        let mut entries: Vec<Entry> = Vec::with_capacity(options.len());
        for (name, value) in options {
            let name = name.to_ascii_lowercase();
            if entries.iter().any(|entry| entry.name == name) {
                return Err(EngineError::user("42601", format!("conflicting or redundant options: \"{name}\" is given twice")));
            }
            entries.push(Entry { name, value: value.clone(), taken: false });
        }
        Ok(Self { context: context.into(), entries, known: Vec::new() })
    }

    /// Names the connector the options are for, once it is known.
    pub(crate) fn set_context(&mut self, context: impl Into<String>) {
        self.context = context.into();
    }

    /// The value of `name`, if given.
    pub(crate) fn take(&mut self, name: &'static str) -> Option<String> {
        self.known.push(name);
        self.take_silently(name)
    }

    /// The value under the first of several spellings; only the first is offered in hints.
    pub(crate) fn take_any(&mut self, names: &[&'static str]) -> Option<String> {
        self.known.extend(names.first());
        names.iter().fold(None, |found, name| found.or_else(|| self.take_silently(name)))
    }

    fn take_silently(&mut self, name: &str) -> Option<String> {
        let entry = self.entries.iter_mut().find(|entry| entry.name == name && !entry.taken)?;
        entry.taken = true;
        Some(entry.value.clone())
    }

    /// Takes every option whose name starts with `prefix`; names are returned without it. `shown` stands for them in hints.
    pub(crate) fn take_prefixed(&mut self, prefix: &str, shown: &'static str) -> Vec<(String, String)> {
        self.known.push(shown);
        let mut found = Vec::new();
        for entry in self.entries.iter_mut().filter(|entry| !entry.taken) {
            if let Some(rest) = entry.name.strip_prefix(prefix) {
                entry.taken = true;
                found.push((rest.to_owned(), entry.value.clone()));
            }
        }
        found
    }

    /// The value of `name`, which must be given.
    pub(crate) fn required(&mut self, name: &'static str) -> Result<String> {
        self.take(name).ok_or_else(|| self.missing(name))
    }

    /// The error for an option that must be given.
    pub(crate) fn missing(&self, name: &str) -> EngineError {
        EngineError::user(INVALID_PARAMETER_VALUE, format!("option \"{name}\" is required for {}", self.context))
    }

    /// `name` as a boolean in one of Postgres' spellings.
    pub(crate) fn boolean(&mut self, name: &'static str, default: bool) -> Result<bool> {
        let Some(value) = self.take(name) else { return Ok(default) };
        parse_boolean(name, &value)
    }

    /// `name` as a number, if given.
    pub(crate) fn number<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>> {
        self.number_any(&[name])
    }

    /// The first of several spellings as a number, if given.
    pub(crate) fn number_any<T: FromStr>(&mut self, names: &[&'static str]) -> Result<Option<T>> {
        let Some(value) = self.take_any(names) else { return Ok(None) };
        value.trim().replace('_', "").parse().map(Some).map_err(|_| invalid_value(names[0], &value, None))
    }

    /// `name` as one of several words, compared in lower case.
    pub(crate) fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)], default: T) -> Result<T> {
        let Some(value) = self.take(name) else { return Ok(default) };
        parse_choice(name, &value, choices)
    }

    /// Checks that every option was taken.
    pub(crate) fn finish(self) -> Result<()> {
        let Some(unknown) = self.entries.iter().find(|entry| !entry.taken) else { return Ok(()) };
        let mut known = self.known.clone();
        known.sort_unstable();
        known.dedup();
        Err(EngineError::User {
            sqlstate: INVALID_PARAMETER_VALUE,
            message: format!("invalid option \"{}\" for {}", unknown.name, self.context),
            hint: Some(format!("Valid options in this context are: {}", known.join(", "))),
        })
    }
}

/// The error for a value that an option does not take, in the wording of Postgres' settings.
pub(crate) fn invalid_value(name: impl Display, value: &str, hint: Option<String>) -> EngineError {
    EngineError::User { sqlstate: INVALID_PARAMETER_VALUE, message: format!("invalid value for parameter \"{name}\": \"{value}\""), hint }
}

/// A boolean as Postgres spells it.
pub(crate) fn parse_boolean(name: impl Display, value: &str) -> Result<bool> {
    match value.trim().to_ascii_lowercase().as_str() {
        "true" | "t" | "on" | "yes" | "y" | "1" => Ok(true),
        "false" | "f" | "off" | "no" | "n" | "0" => Ok(false),
        _ => Err(invalid_value(name, value, Some("Available values: true, false.".into()))),
    }
}

/// One of several words.
pub(crate) fn parse_choice<T: Copy>(name: impl Display, value: &str, choices: &[(&str, T)]) -> Result<T> {
    let wanted = value.trim().to_ascii_lowercase();
    if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == wanted) {
        return Ok(*choice);
    }
    let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
    Err(invalid_value(name, value, Some(format!("Available values: {}.", words.join(", ")))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> Result<OptionList> {
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        OptionList::new("connector \"test\"", &pairs)
    }

    fn text(error: EngineError) -> String {
        match error {
            EngineError::User { sqlstate, message, hint } => format!("{sqlstate} {message} | {}", hint.unwrap_or_default()),
            other => panic!("not a user error: {other}"),
        }
    }

    #[test]
    fn takes_values_of_every_kind() {
        let mut options = list(&[("Path", "x"), ("rate", "10_000"), ("header", "ON"), ("fields.a.kind", "random")]).unwrap();
        assert_eq!(options.required("path").unwrap(), "x");
        assert_eq!(options.number::<u64>("rate").unwrap(), Some(10_000));
        assert!(options.boolean("header", false).unwrap());
        assert_eq!(options.choice("mode", &[("bounded", 1), ("watch", 2)], 1).unwrap(), 1);
        assert_eq!(options.take_prefixed("fields.", "fields.<column>.<setting>"), [("a.kind".to_owned(), "random".to_owned())]);
        options.finish().unwrap();
    }

    #[test]
    fn errors_name_the_option_and_help() {
        let mut options = list(&[("rat", "10")]).unwrap();
        assert_eq!(options.number::<u64>("rate").unwrap(), None);
        assert_eq!(text(options.required("path").unwrap_err()), "22023 option \"path\" is required for connector \"test\" | ");
        assert_eq!(
            text(options.finish().unwrap_err()),
            "22023 invalid option \"rat\" for connector \"test\" | Valid options in this context are: path, rate"
        );
        let mut options = list(&[("rate", "fast"), ("mode", "tail")]).unwrap();
        assert_eq!(text(options.number::<u64>("rate").unwrap_err()), "22023 invalid value for parameter \"rate\": \"fast\" | ");
        assert_eq!(
            text(options.choice("mode", &[("bounded", 1), ("watch", 2)], 1).unwrap_err()),
            "22023 invalid value for parameter \"mode\": \"tail\" | Available values: bounded, watch."
        );
        assert_eq!(text(list(&[("a", "1"), ("A", "2")]).unwrap_err()), "42601 conflicting or redundant options: \"a\" is given twice | ");
    }
}
