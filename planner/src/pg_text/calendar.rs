//! The proleptic Gregorian calendar in integers, for years far outside what date libraries take.
//!
//! Years are astronomical: 0 is 1 BC, -1 is 2 BC. Days count from 1970-01-01.

/// Microseconds in a second.
pub const MICROS_PER_SECOND: i64 = 1_000_000;
/// Microseconds in a day of 24 hours.
pub const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// The date that is later than all others.
pub const DATE_INFINITY: i32 = i32::MAX;
/// The date that is earlier than all others.
pub const DATE_NEGATIVE_INFINITY: i32 = i32::MIN;
/// The timestamp that is later than all others.
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
/// The timestamp that is earlier than all others.
pub const TIMESTAMP_NEGATIVE_INFINITY: i64 = i64::MIN;

/// Earliest day of Postgres' calendar: Julian day 0, 4714-11-24 BC.
pub(super) const FIRST_DAY: i64 = -2_440_588;
/// First day after the last date: 5874898-01-01.
const END_DATE_DAY: i64 = 2_147_483_494 - 2_440_588;

/// Whether a number of days since 1970 is a date of Postgres' calendar. The infinities are none.
pub fn is_date(days: i64) -> bool {
    (FIRST_DAY..END_DATE_DAY).contains(&days)
}

/// Names as they are written in the styles that are not ISO.
pub(super) const MONTH_NAMES: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// Names as they are written in the styles that are not ISO; Sunday first.
pub(super) const DAY_NAMES: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Whether an astronomical year has a 29th of February.
pub(super) fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Days of a month, 1 to 12, of an astronomical year.
pub fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(is_leap_year(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 of a date with an astronomical year. The date need not be checked: day 31 of April is the 1st of May.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    // The year begins in March, so that the leap day is its last; eras are the calendar's period of 400 years.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (i64::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// (astronomical year, month 1 to 12, day 1 to 31) of days since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 } as u32;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Day of the week, 0 is Sunday.
pub(super) fn weekday(days: i64) -> usize {
    (days + 4).rem_euclid(7) as usize
}
