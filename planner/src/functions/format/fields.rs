//! The fields of a moment or interval that patterns show.

use arrow::datatypes::IntervalMonthDayNano;

use crate::pg_text::{MICROS_PER_DAY, MICROS_PER_SECOND, civil_from_days, days_from_civil};

/// Day of 1970-01-01 in the count of Julian days.
const JULIAN_OF_EPOCH: i64 = 2_440_588;

/// Names of months.
pub(super) const MONTHS: [&str; 12] =
    ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];
/// Names of weekdays.
pub(super) const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Roman numbers of months.
pub(super) const ROMAN_MONTHS: [&str; 12] = ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

/// A zone at a moment: its abbreviation and its offset in seconds east.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneFields {
    pub(super) name: String,
    pub(super) offset: i64,
}

/// The fields.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    /// 0 is 1 BC.
    pub(super) year: i64,
    /// 1 to 12; of an interval 0 to 11 either way.
    pub(super) month: i64,
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) micros: i64,
    pub(super) zone: ZoneFields,
    /// What only a date has.
    pub(super) date: Option<DateFields>,
}

/// What only a date has.
#[derive(Clone, Debug)]
pub(super) struct DateFields {
    /// 0 is Sunday.
    pub(super) weekday: i64,
    /// 1 is the first of January.
    pub(super) day_of_year: i64,
    pub(super) julian: i64,
    pub(super) iso_year: i64,
    pub(super) iso_week: i64,
}

impl Fields {
    /// Of local time in microseconds since 1970.
    pub(super) fn of_timestamp(local: i64, zone: ZoneFields) -> Self {
        let (days, time) = (local.div_euclid(MICROS_PER_DAY), local.rem_euclid(MICROS_PER_DAY));
        let (year, month, day) = civil_from_days(days);
        let weekday = (days + 4).rem_euclid(7);
        // The week belongs to the year of its Thursday.
        let thursday = days - (weekday + 6).rem_euclid(7) + 3;
        let (iso_year, ..) = civil_from_days(thursday);
        let date = DateFields {
            weekday,
            day_of_year: days - days_from_civil(year, 1, 1) + 1,
            julian: days + JULIAN_OF_EPOCH,
            iso_year,
            iso_week: (thursday - days_from_civil(iso_year, 1, 1)) / 7 + 1,
        };
        Self { year, month: month.into(), day: day.into(), zone, date: Some(date), ..Self::of_time(time) }
    }

    /// Of an interval: hours are not counted into days.
    pub(super) fn of_interval(value: IntervalMonthDayNano) -> Self {
        let micros = value.nanoseconds / 1_000;
        let (year, month) = (i64::from(value.months) / 12, i64::from(value.months) % 12);
        Self { year, month, day: value.days.into(), ..Self::of_time(micros) }
    }

    fn of_time(micros: i64) -> Self {
        let seconds = micros / MICROS_PER_SECOND;
        Self {
            year: 0,
            month: 0,
            day: 0,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: micros % MICROS_PER_SECOND,
            zone: ZoneFields::default(),
            date: None,
        }
    }

    /// The year as it is written, without the sign of the era.
    pub(super) fn shown_year(&self, year: i64) -> i64 {
        if self.date.is_some() && year <= 0 { 1 - year } else { year }
    }
}
