//! Time zones as `SET TimeZone` takes them.

use millpond_planner::pg_text::Zone;

use crate::error::{Result, SqlError};

/// The zone that a value of the setting means.
pub(crate) fn parse(value: &str) -> Result<Zone> {
    let value = value.trim();
    let zone = match value.strip_prefix('<').and_then(|shown| shown.split_once('>')) {
        // What SHOW says of a fixed offset: the shown offset, then the POSIX one.
        Some((shown, _)) => offset_seconds(shown).map(Zone::Fixed),
        None if value.eq_ignore_ascii_case("local") || value.eq_ignore_ascii_case("default") => Some(Zone::utc()),
        None => offset_seconds(value).map(Zone::Fixed).or_else(|| Zone::parse(value)),
    };
    zone.ok_or_else(|| SqlError::new("22023", format!("invalid value for parameter \"TimeZone\": \"{value}\"")))
}

/// The canonical spelling of a value.
pub(crate) fn canonical(value: &str) -> Result<String> {
    Ok(parse(value)?.name())
}

/// Seconds east of Greenwich of `+05:30`.
fn offset_seconds(value: &str) -> Option<i32> {
    let (sign, rest) = match value.as_bytes().first()? {
        b'-' => (-1, &value[1..]),
        b'+' => (1, &value[1..]),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':').unwrap_or((rest, "0"));
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    (hours < 168 && (0..60).contains(&minutes)).then_some(sign * (hours * 3600 + minutes * 60))
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
        assert_eq!(canonical("<-07>+07").unwrap(), "<-07>+07");
        assert_eq!(canonical("Mars/Olympus").unwrap_err().sqlstate, "22023");
        assert!(canonical("+99999999999").is_err());
    }
}
