//! The run-time settings: their names, defaults and legal values. What a value means is checked and brought into its canonical form here;
//! which value holds when is `variables.rs`.

use std::time::Duration;

use crate::{
    error::{Result, SqlError},
    session::time_zone,
};

/// What values a setting takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `on` or `off`.
    Bool,
    /// An integer in a range.
    Int(i64, i64),
    /// A number in a range, given in thousandths.
    Real(i64, i64),
    /// A time in milliseconds, with a unit or without; 0 switches it off.
    Millis,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text.
    Text,
    /// A list of names.
    Names,
    /// Output style and field order of dates.
    DateStyle,
    /// A time zone.
    TimeZone,
    /// `UTF8` under any of its names.
    Encoding,
}

/// One setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its name as SHOW prints it.
    pub(crate) name: &'static str,
    /// Its value in a new session.
    pub(crate) default: &'static str,
    /// Legal values.
    pub(crate) kind: Kind,
    /// Clients are told of its value at the start and at each change.
    pub(crate) reported: bool,
    /// It cannot be set.
    pub(crate) read_only: bool,
    /// One line for `pg_settings`.
    pub(crate) description: &'static str,
}

const fn setting(name: &'static str, default: &'static str, kind: Kind, description: &'static str) -> Setting {
    Setting { name, default, kind, reported: false, read_only: false, description }
}

const fn reported(name: &'static str, default: &'static str, kind: Kind, description: &'static str) -> Setting {
    Setting { name, default, kind, reported: true, read_only: false, description }
}

const fn preset(name: &'static str, default: &'static str, is_reported: bool, description: &'static str) -> Setting {
    Setting { name, default, kind: Kind::Text, reported: is_reported, read_only: true, description }
}

const LEVELS: &[&str] = &["serializable", "repeatable read", "read committed", "read uncommitted"];
const MESSAGE_LEVELS: &[&str] = &["debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error", "info"];

/// Who owns everything that exists.
pub(crate) const OWNER_NAME: &str = "millpond";

/// The version clients are told: that of the Postgres whose behaviour is followed, which is all that drivers read, and our own.
pub(crate) const SERVER_VERSION: &str = concat!("15.0 (Millpond ", env!("CARGO_PKG_VERSION"), ")");

/// Every setting, by lower-case name.
pub(crate) static SETTINGS: &[Setting] = &[
    setting(
        "aligned_checkpoint_timeout",
        "1s",
        Kind::Millis,
        "Sets how long the checkpoint barriers of jobs created in this session wait before they overtake what is in their way.",
    ),
    reported("application_name", "", Kind::Text, "Sets the application name to be reported in statistics and logs."),
    setting("array_nulls", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("backslash_quote", "safe_encoding", Kind::Text, "Accepted for compatibility; without effect."),
    setting(
        "buffer_debloat_target",
        "1s",
        Kind::Millis,
        "Sets within which time the consumers of jobs created in this session should take what their exchanges hold; 0 is no limit.",
    ),
    setting("bytea_output", "hex", Kind::Word(&["hex", "escape"]), "Sets the output format for bytea."),
    setting("check_function_bodies", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    reported("client_encoding", "UTF8", Kind::Encoding, "Sets the client's character set encoding."),
    setting("client_min_messages", "notice", Kind::Word(MESSAGE_LEVELS), "Sets the message levels that are sent to the client."),
    setting("cursor_tuple_fraction", "0.1", Kind::Real(0, 1000), "Accepted for compatibility; without effect."),
    reported("DateStyle", "ISO, MDY", Kind::DateStyle, "Sets the display format for date and time values."),
    setting("default_statistics_target", "100", Kind::Int(1, 10000), "Accepted for compatibility; without effect."),
    setting("default_table_access_method", "heap", Kind::Text, "Accepted for compatibility; without effect."),
    setting("default_tablespace", "", Kind::Text, "Accepted for compatibility; without effect."),
    setting("default_transaction_deferrable", "off", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("default_transaction_isolation", "read committed", Kind::Word(LEVELS), "Sets the isolation level of each new transaction."),
    reported("default_transaction_read_only", "off", Kind::Bool, "Sets the default read-only status of new transactions."),
    setting("enable_hashjoin", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("enable_seqscan", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("escape_string_warning", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("extra_float_digits", "1", Kind::Int(-15, 3), "Sets the number of digits displayed for floating-point values."),
    setting("force_parallel_mode", "off", Kind::Text, "Accepted for compatibility; without effect."),
    setting("geqo", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting(
        "idle_in_transaction_session_timeout",
        "0",
        Kind::Millis,
        "Sets the maximum allowed idle time between queries, when in a transaction.",
    ),
    setting("idle_session_timeout", "0", Kind::Millis, "Sets the maximum allowed idle time between queries, when not in a transaction."),
    preset("in_hot_standby", "off", true, "Shows whether hot standby is currently active."),
    preset("integer_datetimes", "on", true, "Shows whether datetimes are integer based."),
    reported(
        "IntervalStyle",
        "postgres",
        Kind::Word(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
        "Sets the display format for interval values.",
    ),
    preset("is_superuser", "on", true, "Shows whether the current user is a superuser."),
    setting("jit", "off", Kind::Bool, "Accepted for compatibility; without effect."),
    preset("lc_collate", "C.UTF-8", false, "Shows the collation order locale."),
    preset("lc_ctype", "C.UTF-8", false, "Shows the character classification and case conversion locale."),
    setting("lc_messages", "C.UTF-8", Kind::Text, "Accepted for compatibility; without effect."),
    setting("lc_monetary", "C.UTF-8", Kind::Text, "Accepted for compatibility; without effect."),
    setting("lc_numeric", "C.UTF-8", Kind::Text, "Accepted for compatibility; without effect."),
    setting("lc_time", "C.UTF-8", Kind::Text, "Accepted for compatibility; without effect."),
    setting("lock_timeout", "0", Kind::Millis, "Sets the maximum allowed duration of any wait for a lock."),
    setting("maintenance_work_mem", "64MB", Kind::Text, "Accepted for compatibility; without effect."),
    preset("max_identifier_length", "63", false, "Shows the maximum identifier length."),
    preset("max_index_keys", "32", false, "Shows the maximum number of index keys."),
    preset("max_connections", "", false, "Shows the maximum number of concurrent connections."),
    setting("password_encryption", "scram-sha-256", Kind::Text, "Accepted for compatibility; without effect."),
    setting(
        "read_freshness",
        "default",
        Kind::Word(&["default", "any", "strict"]),
        "Sets what a SELECT waits for: what was acknowledged or seen of its relations, nothing, or what was acknowledged or seen of any.",
    ),
    setting("read_timeout", "10s", Kind::Millis, "Sets how long a SELECT waits for its relations to catch up."),
    setting("role", "none", Kind::Text, "Accepted for compatibility; without effect."),
    setting("row_security", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("search_path", "\"$user\", public", Kind::Names, "Sets the schema search order for names that are not schema-qualified."),
    preset("server_encoding", "UTF8", true, "Shows the server (database) character set encoding."),
    preset("server_version", SERVER_VERSION, true, "Shows the server version."),
    preset("server_version_num", "150000", false, "Shows the server version as an integer."),
    preset("session_authorization", "millpond", true, "Shows the session user name."),
    setting("session_replication_role", "origin", Kind::Text, "Accepted for compatibility; without effect."),
    reported("standard_conforming_strings", "on", Kind::Word(&["on"]), "Causes '...' strings to treat backslashes literally."),
    setting("statement_timeout", "0", Kind::Millis, "Sets the maximum allowed duration of any statement."),
    setting("synchronize_seqscans", "on", Kind::Bool, "Accepted for compatibility; without effect."),
    setting(
        "synchronous_commit",
        "on",
        Kind::Word(&["on", "off", "local", "remote_write", "remote_apply"]),
        "Accepted; every commit is durable.",
    ),
    setting("temp_buffers", "8MB", Kind::Text, "Accepted for compatibility; without effect."),
    reported("TimeZone", "UTC", Kind::TimeZone, "Sets the time zone for displaying and interpreting time stamps."),
    setting("timezone_abbreviations", "Default", Kind::Text, "Accepted for compatibility; without effect."),
    setting("transaction_deferrable", "off", Kind::Bool, "Accepted for compatibility; without effect."),
    setting("transaction_isolation", "read committed", Kind::Word(LEVELS), "Sets the current transaction's isolation level."),
    setting("transaction_read_only", "off", Kind::Bool, "Sets the current transaction's read-only status."),
    setting("transaction_timeout", "0", Kind::Millis, "Sets the maximum allowed duration of any transaction within a session."),
    setting("vacuum_cost_delay", "0", Kind::Text, "Accepted for compatibility; without effect."),
    setting("work_mem", "4MB", Kind::Text, "Accepted for compatibility; without effect."),
    setting("xmloption", "content", Kind::Word(&["content", "document"]), "Accepted for compatibility; without effect."),
];

/// The units of times, in the words of PostgreSQL.
pub(crate) const UNITS: &str = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";

/// The setting of that name, in any case.
pub(crate) fn find(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name.eq_ignore_ascii_case(name))
}

impl Setting {
    /// The canonical form of a value (a list has its elements between commas), or why it is not one (22023).
    pub(crate) fn canonical(&self, value: &str) -> Result<String> {
        match self.kind {
            Kind::Bool => match parse_bool(value) {
                Some(true) => Ok("on".to_owned()),
                Some(false) => Ok("off".to_owned()),
                None => Err(SqlError::new("22023", format!("parameter \"{}\" requires a Boolean value", self.name))),
            },
            Kind::Int(low, high) => self.canonical_int(value, low, high),
            Kind::Real(low, high) => match value.trim().parse::<f64>() {
                Ok(number) if number * 1000.0 >= low as f64 && number * 1000.0 <= high as f64 => Ok(number.to_string()),
                _ => Err(self.invalid(value)),
            },
            Kind::Millis => parse_millis(value).map(show_millis).ok_or_else(|| self.invalid(value).with_hint(UNITS)),
            Kind::Word(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(value)) {
                Some(word) => Ok((*word).to_owned()),
                None if words.contains(&"on") && parse_bool(value) == Some(true) => Ok("on".to_owned()),
                None => Err(self.invalid(value).with_hint(format!("Available values: {}.", words.join(", ")))),
            },
            Kind::Text => Ok(value.to_owned()),
            Kind::Names => Ok(quote_names(&split_names(value))),
            Kind::DateStyle => date_style(value),
            Kind::TimeZone => time_zone::canonical(value),
            Kind::Encoding => match value.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
                "utf8" | "unicode" | "sqlascii" => Ok("UTF8".to_owned()),
                _ => Err(SqlError::new("22023", format!("invalid value for parameter \"client_encoding\": \"{value}\""))
                    .with_hint("Only UTF8 is supported.")),
            },
        }
    }

    fn canonical_int(&self, value: &str, low: i64, high: i64) -> Result<String> {
        let number: i64 = value.trim().parse().map_err(|_| self.invalid(value))?;
        if (low..=high).contains(&number) {
            return Ok(number.to_string());
        }
        Err(SqlError::new("22023", format!("{number} is outside the valid range for parameter \"{}\" ({low} .. {high})", self.name)))
    }

    fn invalid(&self, value: &str) -> SqlError {
        SqlError::new("22023", format!("invalid value for parameter \"{}\": \"{value}\"", self.name))
    }
}

/// A Boolean as Postgres reads it: a word or any unambiguous beginning of it.
pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    let value = value.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(&value);
    if value == "1" || begins("true", 1) || begins("yes", 1) || begins("on", 2) {
        Some(true)
    } else if value == "0" || begins("false", 1) || begins("no", 1) || begins("off", 2) {
        Some(false)
    } else {
        None
    }
}

/// Milliseconds of a time setting; a number without a unit is in milliseconds.
pub(crate) fn parse_millis(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let number: f64 = value[..digits].parse().ok()?;
    let factor = match value[digits..].trim() {
        "us" => 0.001,
        "" | "ms" => 1.0,
        "s" => 1_000.0,
        "min" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => return None,
    };
    let millis = (number * factor).round();
    (millis <= f64::from(i32::MAX)).then_some(millis as u64)
}

/// The largest unit in which the time is a whole number, as Postgres prints it.
fn show_millis(millis: u64) -> String {
    for (unit, length) in [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)] {
        if millis > 0 && millis.is_multiple_of(length) {
            return format!("{}{unit}", millis / length);
        }
    }
    if millis == 0 { "0".to_owned() } else { format!("{millis}ms") }
}

/// The time a canonical value stands for; `None` when it is off.
pub(crate) fn duration(canonical: &str) -> Option<Duration> {
    parse_millis(canonical).filter(|millis| *millis > 0).map(Duration::from_millis)
}

fn date_style(value: &str) -> Result<String> {
    let (mut style, mut order) = (None, None);
    for word in value.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "iso" => style = Some("ISO"),
            "sql" => style = Some("SQL"),
            "german" => style = Some("German"),
            word if word.starts_with("postgres") => style = Some("Postgres"),
            "ymd" => order = Some("YMD"),
            "dmy" | "euro" | "european" => order = Some("DMY"),
            "mdy" | "us" | "noneuro" | "noneuropean" => order = Some("MDY"),
            "default" => (style, order) = (Some("ISO"), Some("MDY")),
            _ => return Err(SqlError::new("22023", format!("invalid value for parameter \"DateStyle\": \"{value}\""))),
        }
    }
    let order = order.unwrap_or(if style == Some("German") { "DMY" } else { "MDY" });
    Ok(format!("{}, {order}", style.unwrap_or("ISO")))
}

/// Names as a list; a name that would not survive being read again is quoted.
fn quote_names(names: &[String]) -> String {
    let quote = |name: &String| {
        let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if plain { name.clone() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
    };
    names.iter().map(quote).collect::<Vec<_>>().join(", ")
}

/// The names of a list; a quoted name may hold anything.
pub(crate) fn split_names(list: &str) -> Vec<String> {
    let (mut names, mut name, mut quoted, mut was_quoted) = (Vec::new(), String::new(), false, false);
    let mut characters = list.chars().peekable();
    let mut end = |name: &mut String, was_quoted: &mut bool| {
        let taken = std::mem::take(name);
        let taken = if *was_quoted { taken } else { taken.trim().to_owned() };
        if !taken.is_empty() {
            names.push(taken);
        }
        *was_quoted = false;
    };
    while let Some(c) = characters.next() {
        match c {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                name.push('"');
            }
            '"' => {
                quoted = !quoted;
                was_quoted = true;
                if quoted {
                    name.clear();
                }
            }
            ',' if !quoted => end(&mut name, &mut was_quoted),
            c if c.is_whitespace() && !quoted && was_quoted => {}
            c => name.push(c),
        }
    }
    end(&mut name, &mut was_quoted);
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(name: &str, value: &str) -> Result<String> {
        find(name).expect("a setting").canonical(value)
    }

    #[test]
    fn values_are_brought_into_their_canonical_form() {
        assert_eq!(set("datestyle", "german").unwrap(), "German, DMY");
        assert_eq!(set("datestyle", "ISO, DMY").unwrap(), "ISO, DMY");
        assert_eq!(set("statement_timeout", "1500").unwrap(), "1500ms");
        assert_eq!(set("statement_timeout", "90s").unwrap(), "90s");
        assert_eq!(set("statement_timeout", "120000").unwrap(), "2min");
        assert_eq!(set("read_freshness", "ANY").unwrap(), "any");
        assert_eq!(set("client_encoding", "utf-8").unwrap(), "UTF8");
        assert_eq!(set("search_path", "$user, a b, \"C,d\", public").unwrap(), "\"$user\", \"a b\", \"C,d\", public");
        assert_eq!(split_names("\"$user\", \"a \"\"b\" , public"), ["$user", "a \"b", "public"]);
        assert_eq!(set("standard_conforming_strings", "true").unwrap(), "on");
    }

    #[test]
    fn wrong_values_are_refused_with_their_name() {
        assert_eq!(
            set("extra_float_digits", "9").unwrap_err().message,
            "9 is outside the valid range for parameter \"extra_float_digits\" (-15 .. 3)"
        );
        assert_eq!(set("jit", "maybe").unwrap_err().sqlstate, "22023");
        assert_eq!(set("datestyle", "metric").unwrap_err().sqlstate, "22023");
        assert_eq!(set("statement_timeout", "5 parsecs").unwrap_err().hint.as_deref(), Some(UNITS));
    }

    #[test]
    fn settings_are_sorted_and_defaults_legal() {
        for setting in SETTINGS {
            assert_eq!(setting.canonical(setting.default).unwrap(), setting.default, "{}", setting.name);
        }
    }
}
