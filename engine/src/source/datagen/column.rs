//! One made-up column: its settings, and its values for given row numbers.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, FixedSizeBinaryBuilder, Int64Array, StringViewBuilder},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, TimeUnit},
};

use super::random::RandomBits;
use crate::{
    error::{EngineError, Result},
    format::timestamp::{DAY_US, TimestampParser, parse_date},
    option_list::{OptionList, invalid_value, parse_choice},
};

/// Characters a random text may have.
const MAX_LENGTH: u64 = 1 << 20;

/// How a column's values are made.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    name: String,
    data_type: DataType,
    kind: Kind,
    bits: RandomBits,
    null_rate: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// `start`, `start + step`, ... (numbers; days; microseconds), `length` values.
    Sequence { start: i64, step: i64, length: Option<u64> },
    /// Microseconds `start + row / rate`: the time at which the row is due.
    Due { start_us: i64, rate: u64 },
    /// Integers, days or microseconds.
    Integer { least: i64, most: i64 },
    /// Floating point numbers and decimals.
    Number { least: f64, most: f64 },
    /// Lower case letters and digits.
    Text { length: u64 },
    /// True or false.
    Boolean,
    /// Version 4 uuids.
    Uuid,
}

/// What a type's numbers count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Number,
    Day,
    Micros { zoned: bool },
}

impl Unit {
    fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Date32 => Some(Unit::Day),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => Some(Unit::Micros { zoned: zone.is_some() }),
            DataType::Int16 | DataType::Int32 | DataType::Int64 => Some(Unit::Number),
            _ => None,
        }
    }

    fn parse(self, text: &str) -> Option<i64> {
        match self {
            Unit::Number => text.trim().replace('_', "").parse().ok(),
            Unit::Day => parse_date(text.as_bytes()).map(i64::from),
            Unit::Micros { zoned } => TimestampParser::default().parse(text.as_bytes(), zoned),
        }
    }
}

/// The settings of one column, checked like options.
struct Settings {
    list: OptionList,
    name: String,
    data_type: DataType,
}

impl Settings {
    fn value(&mut self, setting: &'static str, unit: Unit) -> Result<Option<i64>> {
        let Some(text) = self.list.take(setting) else { return Ok(None) };
        unit.parse(&text).filter(|value| fits(&self.data_type, *value)).map(Some).ok_or_else(|| self.wrong(setting, &text))
    }

    fn wrong(&self, setting: &str, text: &str) -> EngineError {
        invalid_value(format!("fields.{}.{setting}", self.name), text, None)
    }
}

impl ColumnSpec {
    /// Checks the settings of a column of a source that starts at `start_us` and gives `rate` rows a second.
    pub(super) fn from_settings(field: &Field, settings: &[(String, String)], start_us: i64, rate: u64) -> Result<Self> {
        let list = OptionList::new(format!("column \"{}\"", field.name()), settings)?;
        let mut settings = Settings { list, name: field.name().clone(), data_type: field.data_type().clone() };
        let unit = Unit::of(field.data_type());
        let sequence_by_default = matches!(unit, Some(Unit::Micros { .. }));
        let sequence = match settings.list.take("kind") {
            Some(kind) => parse_choice(format!("fields.{}.kind", field.name()), &kind, &[("sequence", true), ("random", false)])?,
            None => sequence_by_default,
        };
        let seed = settings.list.number("seed")?.unwrap_or(0);
        let null_rate: f64 = settings.list.number("null_rate")?.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&null_rate) {
            return Err(settings.wrong("null_rate", &null_rate.to_string()));
        }
        let kind = match (sequence, unit) {
            (true, Some(unit)) => sequence_kind(&mut settings, unit, start_us, rate)?,
            (true, None) => return Err(unsupported(field, "a sequence")),
            (false, _) => random_kind(&mut settings, field, unit, start_us)?,
        };
        settings.list.finish()?;
        Ok(Self {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            kind,
            bits: RandomBits::new(field.name(), seed),
            null_rate,
        })
    }

    /// Rows after which the column ends.
    pub(super) fn length(&self) -> Option<u64> {
        if let Kind::Sequence { length, .. } = self.kind { length } else { None }
    }

    /// The values of the given rows.
    pub(super) fn values(&self, rows: &[u64]) -> Result<ArrayRef> {
        let nulls = |row: u64| self.null_rate > 0.0 && self.bits.fraction(row, u64::MAX) < self.null_rate;
        let some = |row: u64| if nulls(row) { None } else { Some(row) };
        let integers =
            |value: &dyn Fn(u64) -> i64| -> ArrayRef { Arc::new(rows.iter().map(|row| some(*row).map(value)).collect::<Int64Array>()) };
        let plain: ArrayRef = match &self.kind {
            Kind::Sequence { start, step, .. } => {
                let value = |row: u64| {
                    let value = i64::try_from(i128::from(*start) + i128::from(row) * i128::from(*step)).ok();
                    value.filter(|value| fits(&self.data_type, *value)).ok_or_else(|| self.out_of_range())
                };
                let values = rows.iter().map(|row| some(*row).map(value).transpose()).collect::<Result<Vec<_>>>()?;
                Arc::new(Int64Array::from(values))
            }
            Kind::Due { start_us, rate } => {
                integers(&|row| start_us.saturating_add_unsigned(super::super::pacing::event_offset_us(row, *rate)))
            }
            Kind::Integer { least, most } => integers(&|row| self.bits.between(row, *least, *most)),
            Kind::Number { least, most } => {
                let number = |row| least + self.bits.fraction(row, 0) * (most - least);
                Arc::new(rows.iter().map(|row| some(*row).map(number)).collect::<arrow::array::Float64Array>())
            }
            Kind::Boolean => {
                Arc::new(rows.iter().map(|row| some(*row).map(|row| self.bits.bits(row, 0) & 1 == 1)).collect::<BooleanArray>())
            }
            Kind::Text { length } => self.texts(rows, *length, some),
            Kind::Uuid => self.uuids(rows, some)?,
        };
        let options = CastOptions { safe: false, ..CastOptions::default() };
        Ok(cast_with_options(&plain, &self.data_type, &options)?)
    }

    fn out_of_range(&self) -> EngineError {
        EngineError::User {
            sqlstate: "22003",
            message: format!("the sequence of column \"{}\" has left the range of its type", self.name),
            hint: Some(format!("Set \"fields.{}.end\", or give the column a wider type.", self.name)),
        }
    }

    fn texts(&self, rows: &[u64], length: u64, some: impl Fn(u64) -> Option<u64>) -> ArrayRef {
        const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let mut column = StringViewBuilder::with_capacity(rows.len());
        let mut text = String::new();
        for row in rows {
            let Some(row) = some(*row) else {
                column.append_null();
                continue;
            };
            text.clear();
            text.extend((0..length).map(|place| char::from(LETTERS[(self.bits.bits(row, place) % 36) as usize])));
            column.append_value(&text);
        }
        Arc::new(column.finish())
    }

    fn uuids(&self, rows: &[u64], some: impl Fn(u64) -> Option<u64>) -> Result<ArrayRef> {
        let mut column = FixedSizeBinaryBuilder::with_capacity(rows.len(), 16);
        for row in rows {
            let Some(row) = some(*row) else {
                column.append_null();
                continue;
            };
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&self.bits.bits(row, 0).to_be_bytes());
            bytes[8..].copy_from_slice(&self.bits.bits(row, 1).to_be_bytes());
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            column.append_value(bytes)?;
        }
        Ok(Arc::new(column.finish()))
    }
}

/// Whether a column of the type can hold a number.
fn fits(data_type: &DataType, value: i64) -> bool {
    match data_type {
        DataType::Int16 => i16::try_from(value).is_ok(),
        DataType::Int32 | DataType::Date32 => i32::try_from(value).is_ok(),
        _ => true,
    }
}

fn unsupported(field: &Field, what: &str) -> EngineError {
    EngineError::user("0A000", format!("column \"{}\" of type {} cannot be {what}", field.name(), field.data_type()))
}

fn sequence_kind(settings: &mut Settings, unit: Unit, start_us: i64, rate: u64) -> Result<Kind> {
    let start = settings.value("start", unit)?;
    let end = settings.value("end", unit)?;
    let step: Option<f64> = settings.list.number("step")?;
    let timed = matches!(unit, Unit::Micros { .. });
    if timed && end.is_none() && step.is_none() {
        return Ok(Kind::Due { start_us: start.unwrap_or(start_us), rate: if rate == 0 { 1 } else { rate } });
    }
    let step = if timed { (step.unwrap_or(1.0 / rate.max(1) as f64) * 1e6) as i64 } else { step.unwrap_or(1.0) as i64 };
    let start = start.unwrap_or(match unit {
        Unit::Number => 1,
        Unit::Day => start_us.div_euclid(DAY_US),
        Unit::Micros { .. } => start_us,
    });
    if step == 0 {
        return Err(settings.wrong("step", "0"));
    }
    let length = match end {
        Some(end) => {
            let steps = (i128::from(end) - i128::from(start)) / i128::from(step);
            Some(u64::try_from(steps + 1).unwrap_or(0))
        }
        None => None,
    };
    Ok(Kind::Sequence { start, step, length })
}

fn random_kind(settings: &mut Settings, field: &Field, unit: Option<Unit>, start_us: i64) -> Result<Kind> {
    if let Some(unit) = unit {
        let (least, most) = (settings.value("min", unit)?, settings.value("max", unit)?);
        let default = match unit {
            Unit::Number => (0, 1000),
            Unit::Day => (start_us.div_euclid(DAY_US), start_us.div_euclid(DAY_US) + 365),
            Unit::Micros { .. } => (start_us, start_us.saturating_add(DAY_US)),
        };
        let (least, most) = (least.unwrap_or(default.0), most.unwrap_or(default.1));
        if least > most {
            return Err(settings.wrong("max", &most.to_string()));
        }
        return Ok(Kind::Integer { least, most });
    }
    match field.data_type() {
        DataType::Float32 | DataType::Float64 | DataType::Decimal128(..) | DataType::Decimal256(..) => {
            let (least, most) = (settings.list.number("min")?.unwrap_or(0.0), settings.list.number("max")?.unwrap_or(1000.0));
            if !(f64::is_finite(least) && f64::is_finite(most) && least <= most) {
                return Err(settings.wrong("max", &most.to_string()));
            }
            Ok(Kind::Number { least, most })
        }
        DataType::Utf8View => {
            let length = settings.list.number("length")?.unwrap_or(10);
            if length > MAX_LENGTH {
                return Err(settings.wrong("length", &length.to_string()));
            }
            Ok(Kind::Text { length })
        }
        DataType::Boolean => Ok(Kind::Boolean),
        DataType::FixedSizeBinary(16) => Ok(Kind::Uuid),
        _ => Err(unsupported(field, "made up")),
    }
}
