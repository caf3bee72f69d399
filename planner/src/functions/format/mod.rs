//! `to_char`, `to_date`, `to_timestamp` and `to_number`: values by patterns such as `YYYY-MM-DD` and `999D99`.

mod fields;
mod moment;
mod number;
mod number_pattern;
mod pattern;
mod read;

use super::{kernel::Traits, signature::Entry};

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::strict("to_char(timestamp, text) text", moment::of_timestamp),
    Entry::kernel("to_char(timestamptz, text) text", Traits::LOCAL, moment::of_timestamptz),
    Entry::strict("to_char(interval, text) text", moment::of_interval),
    Entry::strict("to_char(integer, text) text", number::of_integer),
    Entry::strict("to_char(bigint, text) text", number::of_integer),
    Entry::strict("to_char(numeric, text) text", number::of_numeric),
    Entry::strict("to_char(real, text) text", number::of_real),
    Entry::strict("to_char(double precision, text) text", number::of_double),
    Entry::strict("to_date(text, text) date", read::date),
    Entry::kernel("to_timestamp(text, text) timestamptz", Traits::LOCAL, read::timestamptz),
    Entry::strict("to_number(text, text) numeric", number::read),
];
