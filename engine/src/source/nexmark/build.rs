//! Nexmark events -> columns. Only the wanted ones are built.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, Int64Array, StringViewArray, StringViewBuilder, TimestampMicrosecondArray},
    datatypes::SchemaRef,
    record_batch::{RecordBatch, RecordBatchOptions},
};
use nexmark::event::Event;

use super::NexmarkTable;
use crate::error::Result;

/// Events that become one batch. A column that is not wanted stays empty.
pub(super) struct EventBatch {
    columns: Vec<Column>,
    rows: usize,
}

enum Column {
    Unwanted,
    Integer(Vec<i64>),
    Time(Vec<i64>),
    Text(StringViewBuilder),
}

impl Column {
    fn integer(&mut self, value: usize) {
        if let Column::Integer(values) = self {
            values.push(value as i64);
        }
    }

    fn time(&mut self, millis: u64) {
        if let Column::Time(values) = self {
            values.push(millis as i64 * 1000);
        }
    }

    fn text(&mut self, value: &str) {
        if let Column::Text(values) = self {
            values.append_value(value);
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Column::Unwanted => Arc::new(StringViewArray::new_null(0)),
            Column::Integer(values) => Arc::new(Int64Array::from(std::mem::take(values))),
            Column::Time(values) => Arc::new(TimestampMicrosecondArray::from(std::mem::take(values))),
            Column::Text(values) => Arc::new(values.finish()),
        }
    }
}

/// `i` integer, `s` text, `t` time, in the order of the relation's columns.
fn layout(table: NexmarkTable) -> &'static str {
    match table {
        NexmarkTable::Person => "isssssts",
        NexmarkTable::Auction => "issiittiis",
        NexmarkTable::Bid => "iiissts",
    }
}

impl EventBatch {
    /// Room for `rows` events, of which `wanted` columns are built.
    pub(super) fn new(table: NexmarkTable, rows: usize, wanted: &[usize]) -> Self {
        let columns = layout(table).chars().enumerate().map(|(column, kind)| match kind {
            _ if !wanted.contains(&column) => Column::Unwanted,
            'i' => Column::Integer(Vec::with_capacity(rows)),
            't' => Column::Time(Vec::with_capacity(rows)),
            _ => Column::Text(StringViewBuilder::with_capacity(rows).with_fixed_block_size(256 << 10)),
        });
        Self { columns: columns.collect(), rows: 0 }
    }

    /// Appends an event of the batch's relation with its event time.
    pub(super) fn push(&mut self, event: Event, millis: u64) {
        let columns = &mut self.columns;
        self.rows += 1;
        match event {
            Event::Person(person) => {
                columns[0].integer(person.id);
                columns[1].text(&person.name);
                columns[2].text(&person.email_address);
                columns[3].text(&person.credit_card);
                columns[4].text(&person.city);
                columns[5].text(&person.state);
                columns[6].time(millis);
                columns[7].text(&person.extra);
            }
            Event::Auction(auction) => {
                columns[0].integer(auction.id);
                columns[1].text(&auction.item_name);
                columns[2].text(&auction.description);
                columns[3].integer(auction.initial_bid);
                columns[4].integer(auction.reserve);
                columns[5].time(millis);
                columns[6].time(millis + auction.expires.saturating_sub(auction.date_time));
                columns[7].integer(auction.seller);
                columns[8].integer(auction.category);
                columns[9].text(&auction.extra);
            }
            Event::Bid(bid) => {
                columns[0].integer(bid.auction);
                columns[1].integer(bid.bidder);
                columns[2].integer(bid.price);
                columns[3].text(&bid.channel);
                columns[4].text(&bid.url);
                columns[5].time(millis);
                columns[6].text(&bid.extra);
            }
        }
    }

    /// The wanted columns, in the order asked for.
    pub(super) fn finish(mut self, schema: SchemaRef, wanted: &[usize]) -> Result<RecordBatch> {
        let columns: Vec<ArrayRef> = wanted.iter().map(|column| self.columns[*column].finish()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)?)
    }
}
