//! Replay of recorded rows at the pace of their event time. Row by row in the order of the file: a row is due when the replay clock has
//! reached its time; a row with an earlier time than one before it, or none, is due with it. The replay clock starts at one event time at
//! one wall-clock instant and runs `speed` times as fast, so that sources with the same settings play together, also after a restart.

use arrow::{
    array::{Array, AsArray},
    datatypes::{DataType, TimeUnit, TimestampMicrosecondType},
    record_batch::RecordBatch,
};

use millpond_storage::env::Clock;

use crate::error::{EngineError, Result};

/// The longest wait that is announced: speeds are large and clocks get set.
const MAX_WAIT_US: i64 = 1_000_000;

/// How recorded rows are paced.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplaySpec {
    /// Timestamp column of the source's schema that decides when a row is due.
    pub column: usize,
    /// Event time passes so many times as fast as the clock.
    pub speed: f64,
    /// Event time at the start, microseconds since 1970; `None`: the first one in the data.
    pub from_us: Option<i64>,
    /// Wall-clock instant of the start, microseconds since 1970 UTC.
    pub start_us: i64,
}

/// A replay over decoded batches.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// Position of the time column in decoded batches.
    pub column: usize,
    /// Event time at the start.
    pub from_us: i64,
    /// Instant of the start.
    pub start_us: i64,
    /// Event seconds per second.
    pub speed: f64,
    /// Tells the time.
    pub clock: Clock,
}

/// Which rows are due.
pub(super) enum Due {
    /// Those before this row.
    Rows(usize),
    /// None; ask again later.
    After {
        /// Microseconds.
        micros: u64,
    },
}

impl Replay {
    /// How many of rows `from..until` of a batch are due now.
    pub(super) fn due(&self, batch: &RecordBatch, from: usize, until: usize) -> Result<Due> {
        let times = batch
            .column(self.column)
            .as_primitive_opt::<TimestampMicrosecondType>()
            .ok_or_else(|| EngineError::Internal("the replay column is no timestamp".into()))?;
        let passed_us = self.clock.wall_micros().saturating_sub(self.start_us) as f64 * self.speed;
        let now = self.from_us.saturating_add(passed_us as i64);
        let late = (from..until).find(|row| times.is_valid(*row) && times.value(*row) > now);
        Ok(match late {
            Some(row) if row == from => {
                let wait = (times.value(row).saturating_sub(now) as f64 / self.speed).ceil() as i64;
                Due::After { micros: wait.clamp(1, MAX_WAIT_US).unsigned_abs() }
            }
            Some(row) => Due::Rows(row),
            None => Due::Rows(until),
        })
    }
}

/// Whether a column can pace a replay.
pub(super) fn is_replay_type(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(TimeUnit::Microsecond, _))
}
