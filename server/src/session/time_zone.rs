//! Time zone names as `SET TimeZone` takes them.

use chrono_tz::{TZ_VARIANTS, Tz};

use crate::error::{Result, SqlError};

/// The canonical spelling of a zone: its IANA name, or a fixed offset `<+02>-02` written as Postgres shows it.
pub(crate) fn canonical(value: &str) -> Result<String> {
    let value = value.trim();
    if let Some(seconds) = offset_seconds(value) {
        return Ok(show_offset(seconds));
    }
    if value.starts_with('<') && shown_offset(value).is_some() {
        return Ok(value.to_owned());
    }
    if value.eq_ignore_ascii_case("local") || value.eq_ignore_ascii_case("default") {
        return Ok("UTC".to_owned());
    }
    TZ_VARIANTS
        .iter()
        .find(|zone| zone.name().eq_ignore_ascii_case(value))
        .map(|zone: &Tz| zone.name().to_owned())
        .ok_or_else(|| SqlError::new("22023", format!("invalid value for parameter \"TimeZone\": \"{value}\"")))
}

/// Seconds east of Greenwich of `-7`, `5.5`, `+05:30`; `None` for anything else.
pub(crate) fn offset_seconds(value: &str) -> Option<i32> {
    let (sign, rest) = match value.as_bytes().first()? {
        b'-' => (-1, &value[1..]),
        b'+' => (1, &value[1..]),
        b'0'..=b'9' => (1, value),
        _ => return None,
    };
    let seconds = match rest.split_once(':') {
        Some((hours, minutes)) => {
            hours.parse::<u32>().ok()?.checked_mul(3600)?.checked_add(minutes.parse::<u32>().ok()?.checked_mul(60)?)?
        }
        None => (rest.parse::<f64>().ok()? * 3600.0).round() as u32,
    };
    // Postgres allows a little less than a week of hours; no zone on Earth is farther than this.
    (seconds <= 15 * 3600 + 59 * 60).then_some(sign * seconds as i32)
}

/// `<+05:30>-05:30`: the shown name first, then the POSIX offset, whose sign is the other way round.
fn show_offset(seconds: i32) -> String {
    let text = |seconds: i32| {
        let (sign, absolute) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
        let (hours, minutes) = (absolute / 3600, absolute % 3600 / 60);
        if minutes == 0 { format!("{sign}{hours:02}") } else { format!("{sign}{hours:02}:{minutes:02}") }
    };
    format!("<{}>{}", text(seconds), text(-seconds))
}

/// Seconds east of Greenwich of a name that `show_offset` wrote.
pub(crate) fn shown_offset(name: &str) -> Option<i32> {
    let (shown, _) = name.strip_prefix('<')?.split_once('>')?;
    offset_seconds(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_offsets() {
        assert_eq!(canonical("america/chicago").unwrap(), "America/Chicago");
        assert_eq!(canonical("utc").unwrap(), "UTC");
        assert_eq!(canonical("-7").unwrap(), "<-07>+07");
        assert_eq!(canonical("+05:30").unwrap(), "<+05:30>-05:30");
        assert_eq!(shown_offset("<+05:30>-05:30"), Some(19_800));
        assert_eq!(canonical("<-07>+07").unwrap(), "<-07>+07");
        assert_eq!(canonical("Mars/Olympus").unwrap_err().sqlstate, "22023");
        assert!(canonical("99999999999").is_err());
    }
}
