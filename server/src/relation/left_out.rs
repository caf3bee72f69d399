//! Rows of a source that a query has left out because they cannot be read, or because no job reads the source, so that it can say so at its end.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{error::Notice, session::notices::Notices};

/// What one query has left out of one source.
#[derive(Debug)]
pub(crate) struct LeftOut {
    source: String,
    count: AtomicU64,
    first: Mutex<Option<String>>,
    standstill: Mutex<Option<Standstill>>,
}

/// How much there is of a source without an end that no job reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standstill {
    /// Nothing: none ever has.
    Unread,
    /// What one has read that is gone.
    ReadBefore,
}

impl LeftOut {
    /// Nothing yet of the source of this name.
    pub(crate) fn of(source: &str) -> Arc<Self> {
        Arc::new(Self { source: source.to_owned(), count: AtomicU64::new(0), first: Mutex::default(), standstill: Mutex::default() })
    }

    /// Counts rows more, and says whether they are the first.
    pub(crate) fn add(&self, count: u64) -> bool {
        self.count.fetch_add(count, Ordering::Relaxed) == 0
    }

    /// Keeps where the first row is and what is wrong with it.
    pub(crate) fn describe_first(&self, place_and_reason: String) {
        *self.first.lock() = Some(place_and_reason);
    }

    /// The source has no end, and no job reads it; whether one has before.
    pub(crate) fn stands_still(&self, read_before: bool) {
        *self.standstill.lock() = Some(if read_before { Standstill::ReadBefore } else { Standstill::Unread });
    }

    /// What a query says of a source that stands still.
    fn standstill(&self) -> Option<Notice> {
        let source = &self.source;
        let message = match (*self.standstill.lock())? {
            Standstill::Unread => format!("source \"{source}\" shows no rows because no materialized view or sink reads it"),
            Standstill::ReadBefore => {
                format!("source \"{source}\" shows no new rows because no materialized view or sink reads it any more")
            }
        };
        let hint =
            "A source without an end shows the rows that have been read of it so far. Create a materialized view over it to have it read.";
        Some(Notice { hint: Some(hint.to_owned()), ..Notice::information(message) })
    }

    /// What a query says of rows that cannot be read; nothing if it has met none.
    fn warning(&self) -> Option<Notice> {
        let count = self.count.load(Ordering::Relaxed);
        let (rows, were) = match count {
            0 => return None,
            1 => ("row", "was"),
            _ => ("rows", "were"),
        };
        let message = format!("{count} {rows} of source \"{}\" could not be read and {were} left out", self.source);
        let first = self.first.lock().clone().map(|first| format!("{}{first}", if count == 1 { ": " } else { ", first " }));
        let hint = "millpond.bad_rows lists those that a view has met. With bad_rows = 'fail' such a query fails.";
        let notice = Notice::warning("01000", message + &first.unwrap_or_default());
        Some(Notice { hint: Some(hint.to_owned()), ..notice })
    }
}

/// The same for all sources of a query, and who is told.
#[derive(Clone, Default)]
pub(crate) struct LeftOutOfAll {
    sources: Vec<Arc<LeftOut>>,
    notices: Option<Notices>,
}

impl LeftOutOfAll {
    /// Of these sources, to be told by `notices`.
    pub(crate) fn new(sources: Vec<Arc<LeftOut>>, notices: Notices) -> Self {
        Self { sources, notices: Some(notices) }
    }

    /// Says what has been left out. Called once, at the end of the query.
    pub(crate) fn tell(&self) {
        let Some(notices) = &self.notices else { return };
        self.sources
            .iter()
            .flat_map(|source| source.standstill().into_iter().chain(source.warning()))
            .for_each(|notice| notices.send(notice));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_how_many_rows_it_has_left_out() {
        let rows = LeftOut::of("s");
        assert_eq!(rows.warning(), None);
        assert!(rows.add(1));
        rows.describe_first("\"f.csv\", line 2: no number".to_owned());
        let message = |rows: &LeftOut| rows.warning().unwrap().message;
        assert_eq!(message(&rows), "1 row of source \"s\" could not be read and was left out: \"f.csv\", line 2: no number");
        assert!(!rows.add(2));
        assert_eq!(message(&rows), "3 rows of source \"s\" could not be read and were left out, first \"f.csv\", line 2: no number");
    }

    #[test]
    fn a_query_says_that_a_source_stands_still() {
        let rows = LeftOut::of("s");
        assert_eq!(rows.standstill(), None);
        let message = |rows: &LeftOut| rows.standstill().unwrap().message;
        rows.stands_still(false);
        assert_eq!(message(&rows), "source \"s\" shows no rows because no materialized view or sink reads it");
        rows.stands_still(true);
        assert_eq!(message(&rows), "source \"s\" shows no new rows because no materialized view or sink reads it any more");
    }
}
