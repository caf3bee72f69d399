//! What a session's settings say about the text form of values.

use millpond_planner::{catalog::object::QuerySettings, pg_text::TextSettings};

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
    Ok(settings.text_in(time_zone::parse(&settings.time_zone)?))
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
