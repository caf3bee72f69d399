//! The values of a session's settings: SET, SET LOCAL, RESET, and what a rollback undoes.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    error::{Result, SqlError},
    session::settings::{self, SETTINGS, Setting},
};

type Values = Arc<BTreeMap<String, String>>;

/// Most custom settings (`a.b`) a session may have, and the longest value of any setting.
const CUSTOM_LIMIT: usize = 256;
const VALUE_LIMIT: usize = 64 * 1024;

/// The settings of one session. Only what differs from the defaults is kept.
#[derive(Clone, Debug)]
pub(crate) struct Variables {
    /// What the session started with: RESET goes back to it.
    start: Values,
    session: Values,
    /// SET LOCAL: gone at the end of the transaction.
    local: Values,
    /// What holds again if the transaction is rolled back.
    at_begin: Option<Values>,
    /// Changes with every change of any value.
    generation: u64,
    changed: Vec<(String, String)>,
}

/// What a savepoint remembers.
#[derive(Clone, Debug)]
pub(crate) struct VariablesMark {
    session: Values,
    local: Values,
}

impl Variables {
    /// The settings of a new session, given what the client asked for at its start. Unknown names are ignored there, as are wrong values of
    /// settings that have no effect.
    pub(crate) fn new(requested: &[(String, String)]) -> Result<Self> {
        let empty = Values::default();
        let mut variables =
            Self { start: empty.clone(), session: empty.clone(), local: empty, at_begin: None, generation: 0, changed: Vec::new() };
        for (name, value) in requested {
            variables.set_at_start(name, value)?;
        }
        Ok(variables)
    }

    /// Takes a setting that the client asked for at its start; unknown ones are ignored.
    pub(crate) fn set_at_start(&mut self, name: &str, value: &str) -> Result<()> {
        if settings::find(name).is_some_and(|setting| !setting.read_only) {
            self.set(name, value, false)?;
            self.start = self.session.clone();
            self.changed.clear();
        }
        Ok(())
    }

    /// Gives a value to a setting that users cannot set.
    pub(crate) fn preset(&mut self, name: &str, value: &str) {
        Arc::make_mut(&mut self.start).insert(name.to_owned(), value.to_owned());
        Arc::make_mut(&mut self.session).insert(name.to_owned(), value.to_owned());
        self.generation += 1;
    }

    /// The value of a setting.
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        match settings::find(name) {
            Some(setting) => Some(self.value(setting).to_owned()),
            None => {
                let key = name.to_ascii_lowercase();
                self.local.get(&key).or_else(|| self.session.get(&key)).cloned()
            }
        }
    }

    /// The value of a setting that exists.
    pub(crate) fn value<'a>(&'a self, setting: &'static Setting) -> &'a str {
        self.local.get(setting.name).or_else(|| self.session.get(setting.name)).map_or(setting.default, String::as_str)
    }

    /// A number that differs whenever any value may differ.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// SHOW name.
    pub(crate) fn show(&self, name: &str) -> Result<(String, String)> {
        let shown = settings::find(name).map_or(name, |setting| setting.name).to_owned();
        let value = self.get(name).ok_or_else(|| unrecognized(name))?;
        Ok((shown, value))
    }

    /// SHOW ALL: name, value, description.
    pub(crate) fn show_all(&self) -> Vec<(&'static str, String, &'static str)> {
        SETTINGS.iter().map(|setting| (setting.name, self.value(setting).to_owned(), setting.description)).collect()
    }

    /// SET [LOCAL] name TO value.
    pub(crate) fn set(&mut self, name: &str, value: &str, local: bool) -> Result<()> {
        if value.len() > VALUE_LIMIT {
            return Err(SqlError::new("54000", format!("value of parameter \"{name}\" is too long")));
        }
        let (key, value) = match settings::find(name) {
            Some(setting) if setting.read_only => {
                return Err(SqlError::new("55P02", format!("parameter \"{}\" cannot be changed", setting.name)));
            }
            Some(setting) => (setting.name.to_owned(), setting.canonical(value)?),
            None if name.contains('.') => (name.to_ascii_lowercase(), value.to_owned()),
            None => return Err(unrecognized(name)),
        };
        if !self.session.contains_key(&key) && self.session.len() >= SETTINGS.len() + CUSTOM_LIMIT {
            return Err(SqlError::new("54000", "too many custom parameters in this session"));
        }
        let before = self.snapshot();
        if local {
            Arc::make_mut(&mut self.local).insert(key, value);
        } else {
            // A later SET of the same transaction outlives an earlier SET LOCAL.
            Arc::make_mut(&mut self.local).remove(&key);
            Arc::make_mut(&mut self.session).insert(key, value);
        }
        self.note_changes(&before);
        Ok(())
    }

    /// RESET name, or SET name TO DEFAULT.
    pub(crate) fn reset(&mut self, name: &str, local: bool) -> Result<()> {
        let key = match settings::find(name) {
            Some(setting) if setting.read_only => {
                return Err(SqlError::new("55P02", format!("parameter \"{}\" cannot be changed", setting.name)));
            }
            Some(setting) => setting.name.to_owned(),
            None if name.contains('.') => name.to_ascii_lowercase(),
            None => return Err(unrecognized(name)),
        };
        let before = self.snapshot();
        let start = self.start.get(&key).cloned();
        if local {
            let default = start.or_else(|| settings::find(name).map(|setting| setting.default.to_owned())).unwrap_or_default();
            Arc::make_mut(&mut self.local).insert(key, default);
        } else {
            Arc::make_mut(&mut self.local).remove(&key);
            match start {
                Some(value) => Arc::make_mut(&mut self.session).insert(key, value),
                None => Arc::make_mut(&mut self.session).remove(&key),
            };
        }
        self.note_changes(&before);
        Ok(())
    }

    /// RESET ALL.
    pub(crate) fn reset_all(&mut self) {
        let before = self.snapshot();
        self.session = self.start.clone();
        self.local = Values::default();
        self.note_changes(&before);
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self) {
        self.at_begin = Some(self.session.clone());
    }

    /// The transaction has been committed.
    pub(crate) fn commit(&mut self) {
        let before = self.snapshot();
        self.local = Values::default();
        self.at_begin = None;
        self.note_changes(&before);
    }

    /// The transaction has been rolled back.
    pub(crate) fn rollback(&mut self) {
        let before = self.snapshot();
        self.local = Values::default();
        if let Some(session) = self.at_begin.take() {
            self.session = session;
        }
        self.note_changes(&before);
    }

    /// What a savepoint set now would go back to.
    pub(crate) fn mark(&self) -> VariablesMark {
        VariablesMark { session: self.session.clone(), local: self.local.clone() }
    }

    /// ROLLBACK TO SAVEPOINT.
    pub(crate) fn restore(&mut self, mark: &VariablesMark) {
        let before = self.snapshot();
        self.session = mark.session.clone();
        self.local = mark.local.clone();
        self.note_changes(&before);
    }

    /// Reported settings that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.changed)
    }

    fn snapshot(&self) -> VariablesMark {
        self.mark()
    }

    fn note_changes(&mut self, before: &VariablesMark) {
        // The end of a transaction that has set nothing is no change: what was planned by the generation goes on to hold.
        if before.session == self.session && before.local == self.local {
            return;
        }
        self.generation += 1;
        for setting in SETTINGS.iter().filter(|setting| setting.reported) {
            let old = before.local.get(setting.name).or_else(|| before.session.get(setting.name)).map_or(setting.default, String::as_str);
            let new = self.value(setting);
            if old != new {
                let pair = (setting.name.to_owned(), new.to_owned());
                self.changed.retain(|(name, _)| *name != setting.name);
                self.changed.push(pair);
            }
        }
    }
}

fn unrecognized(name: &str) -> SqlError {
    SqlError::new("42704", format!("unrecognized configuration parameter \"{name}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(variables: &mut Variables, name: &str, value: &str) {
        variables.set(name, value, false).unwrap();
    }

    #[test]
    fn a_transaction_that_sets_nothing_changes_nothing() {
        let mut variables = Variables::new(&[]).unwrap();
        set(&mut variables, "TimeZone", "Asia/Tokyo");
        let generation = variables.generation();
        variables.begin();
        variables.commit();
        variables.begin();
        variables.rollback();
        assert_eq!(variables.generation(), generation);
        variables.begin();
        set(&mut variables, "TimeZone", "UTC");
        assert_ne!(variables.generation(), generation);
    }

    #[test]
    fn a_rollback_undoes_set_and_a_commit_keeps_it() {
        let mut variables = Variables::new(&[]).unwrap();
        variables.begin();
        set(&mut variables, "application_name", "b67");
        variables.commit();
        variables.begin();
        set(&mut variables, "application_name", "inner");
        assert_eq!(variables.get("Application_Name").as_deref(), Some("inner"));
        variables.rollback();
        assert_eq!(variables.get("application_name").as_deref(), Some("b67"));
    }

    #[test]
    fn set_local_ends_with_the_transaction_and_set_overrides_it() {
        let mut variables = Variables::new(&[]).unwrap();
        variables.begin();
        variables.set("timezone", "Asia/Tokyo", true).unwrap();
        assert_eq!(variables.get("TimeZone").as_deref(), Some("Asia/Tokyo"));
        variables.commit();
        assert_eq!(variables.get("TimeZone").as_deref(), Some("UTC"));
        variables.begin();
        variables.set("timezone", "Asia/Tokyo", true).unwrap();
        set(&mut variables, "timezone", "Europe/Paris");
        variables.commit();
        assert_eq!(variables.get("TimeZone").as_deref(), Some("Europe/Paris"));
    }

    #[test]
    fn a_savepoint_goes_back_to_its_values() {
        let mut variables = Variables::new(&[]).unwrap();
        variables.begin();
        set(&mut variables, "extra_float_digits", "2");
        let mark = variables.mark();
        set(&mut variables, "extra_float_digits", "3");
        variables.restore(&mark);
        variables.commit();
        assert_eq!(variables.get("extra_float_digits").as_deref(), Some("2"));
    }

    #[test]
    fn reset_goes_back_to_what_the_client_asked_for_at_its_start() {
        let mut variables =
            Variables::new(&[("TimeZone".to_owned(), "Asia/Tokyo".to_owned()), ("user".to_owned(), "x".to_owned())]).unwrap();
        set(&mut variables, "timezone", "UTC");
        assert_eq!(variables.take_changed(), [("TimeZone".to_owned(), "UTC".to_owned())]);
        variables.reset("timezone", false).unwrap();
        assert_eq!(variables.get("timezone").as_deref(), Some("Asia/Tokyo"));
        assert_eq!(variables.take_changed(), [("TimeZone".to_owned(), "Asia/Tokyo".to_owned())]);
        assert!(variables.take_changed().is_empty());
    }

    #[test]
    fn unknown_and_fixed_settings_are_refused() {
        let mut variables = Variables::new(&[]).unwrap();
        assert_eq!(variables.set("nosuch", "1", false).unwrap_err().sqlstate, "42704");
        assert_eq!(variables.set("server_version", "1", false).unwrap_err().sqlstate, "55P02");
        assert_eq!(variables.show("nosuch").unwrap_err().message, "unrecognized configuration parameter \"nosuch\"");
        set(&mut variables, "my.flag", "7");
        assert_eq!(variables.show("My.Flag").unwrap().1, "7");
    }
}
