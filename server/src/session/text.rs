//! What a session's settings say about the text form of values.

use millpond_planner::{
    catalog::object::QuerySettings,
    pg_text::{ByteaOutput, DateOrder, DateStyle, IntervalStyle, TextSettings},
};

use crate::{
    error::Result,
    session::{time_zone, variables::Variables},
};

/// The settings of a session; `now_us` is the time of its transaction.
pub(crate) fn of_variables(variables: &Variables, now_us: i64) -> TextSettings {
    let settings = query_settings(variables);
    let text = of_settings(&settings).unwrap_or_default();
    TextSettings { now_us: Some(now_us), ..text }
}

/// The settings that a stored query keeps.
pub(crate) fn query_settings(variables: &Variables) -> QuerySettings {
    let get = |name: &str| variables.get(name).unwrap_or_default();
    QuerySettings {
        time_zone: get("TimeZone"),
        date_style: get("DateStyle"),
        interval_style: get("IntervalStyle"),
        bytea_output: get("bytea_output"),
        extra_float_digits: get("extra_float_digits").parse().unwrap_or(1),
    }
}

/// The settings of a stored query.
///
/// # Errors
/// 22023 for a time zone that this server does not know.
pub(crate) fn of_settings(settings: &QuerySettings) -> Result<TextSettings> {
    let (style, order) = settings.date_style.split_once(", ").unwrap_or((&settings.date_style, "MDY"));
    Ok(TextSettings {
        time_zone: time_zone::parse(&settings.time_zone)?,
        date_style: match style {
            "SQL" => DateStyle::Sql,
            "German" => DateStyle::German,
            "Postgres" => DateStyle::Postgres,
            _ => DateStyle::Iso,
        },
        date_order: match order {
            "YMD" => DateOrder::Ymd,
            "DMY" => DateOrder::Dmy,
            _ => DateOrder::Mdy,
        },
        interval_style: match settings.interval_style.as_str() {
            "postgres_verbose" => IntervalStyle::PostgresVerbose,
            "sql_standard" => IntervalStyle::SqlStandard,
            "iso_8601" => IntervalStyle::Iso8601,
            _ => IntervalStyle::Postgres,
        },
        bytea_output: if settings.bytea_output == "escape" { ByteaOutput::Escape } else { ByteaOutput::Hex },
        extra_float_digits: settings.extra_float_digits,
        now_us: None,
    })
}

impl super::Session {
    pub(super) fn refresh_text(&mut self) {
        let now_us = self.now_us();
        if self.text.0 != self.variables.generation() {
            self.text = (self.variables.generation(), of_variables(&self.variables, now_us));
            self.activity.rename(&self.variables.get("application_name").unwrap_or_default());
        }
        self.text.1.now_us = Some(now_us);
    }
}
