//! The Nexmark auction site: persons, auctions and bids, made up but always the same. A split is a lane; lane k of n gives events k, k + n,
//! k + 2n, ... of its relation. The offset counts the lane's events; what event i is, is a function of i.
//!
//! | option | meaning |
//! |---|---|
//! | `table` (`table.type`) | `person`, `auction` or `bid` |
//! | `rate` | events a second, over all three relations; 0 (default): as fast as they are read |
//! | `events` | the site closes after so many events, over all three relations (default: never) |
//! | `splits` | lanes (default 1) |
//! | `event_time` | `generated` (default): 10,000 events a second from `base_time` on; `wall_clock`: `rate` events a second from `base_time` on, which then is when the source was created |
//! | `base_time` | event time of event 0 (default 2026-01-01 00:00:00 when generated) |
//! | `start_time` | instant at which event 0 is due (default: when the source is created) |
//!
//! Of 50 events 1 is a person, 3 are auctions and 46 are bids. Event time is computed here, in whole milliseconds: the generator
//! computes it in `f32`, which grows coarse after some ten million events.

mod build;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use millpond_storage::env::Clock;
use nexmark::{EventGenerator, config::NexmarkConfig, event::EventType};

use self::build::EventBatch;
use super::{
    Discovery, Offset, ReadOutcome, Source, Split, SplitReader,
    options::{instant_option, subset},
    pacing::Pacing,
};
use crate::{
    chunk::CHUNK_ROWS,
    error::{EngineError, Result},
    option_list::{OptionList, invalid_value},
};

/// 2026-01-01 00:00:00, milliseconds since 1970.
const BASE_MS: u64 = 1_767_225_600_000;

/// Events a second of generated event time.
const EVENT_TIME_RATE: u64 = 10_000;

/// Lanes a source may have.
const MAX_LANES: u64 = 1024;

/// One of the three relations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NexmarkTable {
    /// People who sell and bid.
    Person,
    /// Items for sale.
    Auction,
    /// Bids on them.
    Bid,
}

impl NexmarkTable {
    fn event_type(self) -> EventType {
        match self {
            NexmarkTable::Person => EventType::Person,
            NexmarkTable::Auction => EventType::Auction,
            NexmarkTable::Bid => EventType::Bid,
        }
    }

    /// Events of this relation in a cycle of 50, and events of others before them.
    fn share(self) -> (u64, u64) {
        match self {
            NexmarkTable::Person => (1, 0),
            NexmarkTable::Auction => (3, 1),
            NexmarkTable::Bid => (46, 4),
        }
    }

    /// The number among all events of the relation's event `index`.
    fn event_number(self, index: u64) -> u64 {
        let (share, before) = self.share();
        index / share * CYCLE + before + index % share
    }

    /// How many of the first `events` events are of this relation.
    fn count(self, events: u64) -> u64 {
        let (share, before) = self.share();
        events / CYCLE * share + (events % CYCLE).saturating_sub(before).min(share)
    }
}

/// Events after which the mix repeats.
const CYCLE: u64 = 50;

/// A Nexmark source, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NexmarkSpec {
    /// The relation.
    pub table: NexmarkTable,
    /// Events a second, zero for no limit.
    pub rate: u64,
    /// The number of events, if it ends.
    pub events: Option<u64>,
    /// Lanes.
    pub splits: u64,
    /// Events a second of event time.
    pub event_time_rate: u64,
    /// Event time of event 0, milliseconds since 1970.
    pub base_ms: u64,
    /// When event 0 is due, microseconds since 1970 UTC.
    pub start_us: i64,
}

impl NexmarkSpec {
    pub(super) fn from_options(list: &mut OptionList) -> Result<Self> {
        let words = [("person", NexmarkTable::Person), ("auction", NexmarkTable::Auction), ("bid", NexmarkTable::Bid)];
        let table = list.take_any(&["table", "table.type", "nexmark.table.type"]).ok_or_else(|| list.missing("table"))?;
        let table = crate::option_list::parse_choice("table", &table, &words)?;
        let rate = list.number_any(&["rate", "nexmark.rate"])?.unwrap_or(0);
        let events = list.number_any(&["events", "nexmark.event.num"])?;
        let splits = list.number_any(&["splits", "nexmark.split.num"])?.unwrap_or(1);
        if !(1..=MAX_LANES).contains(&splits) {
            return Err(invalid_value("splits", &splits.to_string(), Some(format!("It must be between 1 and {MAX_LANES}."))));
        }
        let wall_clock = list.choice("event_time", &[("generated", false), ("wall_clock", true)], false)?;
        if wall_clock && rate == 0 {
            let hint = Some("Set option \"rate\" to the number of events a second.".into());
            return Err(invalid_value("event_time", "wall_clock", hint));
        }
        let start_us = instant_option(list, "start_time")?.unwrap_or(0);
        let base_us = instant_option(list, "base_time")?;
        let base_ms = match base_us {
            Some(base_us) => {
                u64::try_from(base_us / 1000).map_err(|_| EngineError::user("22023", "option \"base_time\" must not be before 1970"))?
            }
            None if wall_clock => u64::try_from(start_us / 1000).unwrap_or(0),
            None => BASE_MS,
        };
        let event_time_rate = if wall_clock { rate } else { EVENT_TIME_RATE };
        Ok(Self { table, rate, events, splits, event_time_rate, base_ms, start_us })
    }

    /// The relation's columns.
    pub fn schema(&self) -> SchemaRef {
        let time = || DataType::Timestamp(TimeUnit::Microsecond, None);
        let columns = match self.table {
            NexmarkTable::Person => vec![
                ("id", DataType::Int64),
                ("name", DataType::Utf8View),
                ("email_address", DataType::Utf8View),
                ("credit_card", DataType::Utf8View),
                ("city", DataType::Utf8View),
                ("state", DataType::Utf8View),
                ("date_time", time()),
                ("extra", DataType::Utf8View),
            ],
            NexmarkTable::Auction => vec![
                ("id", DataType::Int64),
                ("item_name", DataType::Utf8View),
                ("description", DataType::Utf8View),
                ("initial_bid", DataType::Int64),
                ("reserve", DataType::Int64),
                ("date_time", time()),
                ("expires", time()),
                ("seller", DataType::Int64),
                ("category", DataType::Int64),
                ("extra", DataType::Utf8View),
            ],
            NexmarkTable::Bid => vec![
                ("auction", DataType::Int64),
                ("bidder", DataType::Int64),
                ("price", DataType::Int64),
                ("channel", DataType::Utf8View),
                ("url", DataType::Utf8View),
                ("date_time", time()),
                ("extra", DataType::Utf8View),
            ],
        };
        Arc::new(Schema::new(columns.into_iter().map(|(name, data_type)| Field::new(name, data_type, true)).collect::<Vec<_>>()))
    }

    /// Checks declared columns: each must be one of the relation's.
    pub(super) fn check_columns(&self, declared: &SchemaRef) -> Result<SchemaRef> {
        subset(declared, &self.schema(), &format!("nexmark relation \"{}\"", format!("{:?}", self.table).to_ascii_lowercase()))
    }
}

/// A Nexmark source.
#[derive(Debug)]
pub struct NexmarkSource {
    spec: NexmarkSpec,
    schema: SchemaRef,
    clock: Clock,
}

impl NexmarkSource {
    /// A source with the columns of `schema`, which are among those of [`NexmarkSpec::schema`].
    pub fn new(spec: NexmarkSpec, schema: SchemaRef, clock: Clock) -> Self {
        Self { spec, schema, clock }
    }

    fn lane_length(&self, lane: u64) -> Option<u64> {
        let count = self.spec.table.count(self.spec.events?);
        Some(count.saturating_sub(lane).div_ceil(self.spec.splits))
    }
}

#[async_trait]
impl Source for NexmarkSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn paced(&self) -> bool {
        self.spec.rate > 0
    }

    async fn discover(&self) -> Result<Discovery> {
        let splits = (0..self.spec.splits)
            .map(|lane| Split { id: format!("lane-{lane}"), end: self.lane_length(lane), bounded: self.spec.events.is_some() })
            .collect();
        Ok(Discovery { splits, complete: true })
    }

    async fn open(&self, split: &Split, from: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let lane = split.id.strip_prefix("lane-").and_then(|lane| lane.parse::<u64>().ok()).filter(|lane| *lane < self.spec.splits);
        let lane = lane.ok_or_else(|| EngineError::Internal(format!("split \"{}\" does not exist", split.id)))?;
        let relation = self.spec.schema();
        let columns =
            projection.iter().map(|column| relation.index_of(self.schema.field(*column).name())).collect::<Result<Vec<_>, _>>()?;
        let rate = usize::try_from(self.spec.event_time_rate).unwrap_or(usize::MAX);
        let config = NexmarkConfig { base_time: self.spec.base_ms, first_rate: rate, next_rate: rate, ..NexmarkConfig::default() };
        let generator = EventGenerator::new(config)
            .with_type_filter(self.spec.table.event_type())
            .with_offset(lane.saturating_add(from.saturating_mul(self.spec.splits)))
            .with_step(self.spec.splits);
        let schema = Arc::new(self.schema.project(projection)?);
        Ok(Box::new(LaneReader {
            generator,
            columns,
            schema,
            position: from,
            lane,
            length: self.lane_length(lane),
            spec: self.spec.clone(),
            pacing: Pacing { rate: self.spec.rate, start_us: self.spec.start_us, clock: self.clock.clone() },
        }))
    }
}

/// Reads one lane.
struct LaneReader {
    generator: EventGenerator,
    /// Wanted columns of the relation.
    columns: Vec<usize>,
    schema: SchemaRef,
    /// Events of the lane read.
    position: Offset,
    lane: u64,
    length: Option<u64>,
    spec: NexmarkSpec,
    pacing: Pacing,
}

impl LaneReader {
    /// The number among all events of the lane's event `position`.
    fn event_number(&self, position: Offset) -> u64 {
        self.spec.table.event_number(position.saturating_mul(self.spec.splits).saturating_add(self.lane))
    }

    /// How many of the lane's next `rows` events are due.
    fn due(&self, rows: u64) -> u64 {
        let due = self.pacing.due();
        if due == u64::MAX {
            return rows;
        }
        let of_relation = self.spec.table.count(due);
        let of_lane = of_relation.saturating_sub(self.lane).div_ceil(self.spec.splits);
        of_lane.saturating_sub(self.position).min(rows)
    }
}

#[async_trait]
impl SplitReader for LaneReader {
    async fn read(&mut self, max_rows: usize, limit: Option<Offset>) -> Result<ReadOutcome> {
        if limit.is_some_and(|limit| self.position >= limit) {
            return Ok(ReadOutcome::AtLimit);
        }
        if self.length.is_some_and(|length| self.position >= length) {
            return Ok(ReadOutcome::Finished);
        }
        let left = limit.unwrap_or(u64::MAX).min(self.length.unwrap_or(u64::MAX)) - self.position;
        let wanted = left.min(max_rows.clamp(1, CHUNK_ROWS) as u64);
        let rows = if limit.is_some() { wanted } else { self.due(wanted) };
        if rows == 0 {
            let retry_after_us = self.pacing.wait_us(self.event_number(self.position));
            return Ok(ReadOutcome::Pending { retry_after_us, idle: false });
        }
        let mut batch = EventBatch::new(self.spec.table, rows as usize, &self.columns);
        for row in 0..rows {
            let number = self.event_number(self.position + row);
            let event = self.generator.next().ok_or_else(|| EngineError::Internal("the generator ended".into()))?;
            batch.push(event, self.spec.base_ms + number * 1000 / self.spec.event_time_rate.max(1));
        }
        self.position += rows;
        Ok(ReadOutcome::Rows { batch: batch.finish(self.schema.clone(), &self.columns)?, end: self.position, bad: Vec::new() })
    }
}
