//! What the epoch log holds after a restart, and what of it is needed no more.

use millpond_storage::{
    epoch::Epoch,
    epoch_log::{Binding, LogRecord, SourceWatermark},
};

use super::{ClosedEpoch, Coordinator, snapshot::SourcesSnapshot};
use crate::error::{EngineError, Result};

impl Coordinator {
    /// Replays the log into the registered tables and sources. The same epochs get the same contents; an epoch that was open at the crash is
    /// closed by a new record. Returns when the log and the tables agree.
    pub async fn recover(&self, records: Vec<LogRecord>) -> Result<()> {
        let snapshot = SourcesSnapshot::newest(&records)?;
        self.check_log(snapshot.epoch())?;
        for (id, source) in &snapshot.sources {
            if let Some(handle) = self.source(*id) {
                handle.restore(snapshot.epoch(), source);
            }
        }
        let found = records.iter().filter_map(LogRecord::epoch).max().unwrap_or_default();
        let mut last = ClosedEpoch { epoch: snapshot.epoch(), time_us: snapshot.time_us };
        // What is gone from the log had been closed.
        if self.log.highest_epoch() > found {
            last.epoch = last.epoch.max(self.log.highest_epoch());
        }
        for record in records {
            match record {
                LogRecord::Dml { epoch, table, delta } => {
                    if let Some(table) = self.table(table) {
                        let prepared = table.prepare(delta)?;
                        table.append(0, epoch, prepared, None);
                    }
                }
                LogRecord::Close { epoch, time_us, bindings, watermarks } => {
                    if epoch > snapshot.epoch() {
                        self.recover_sources(epoch, &bindings, &watermarks)?;
                    }
                    last = ClosedEpoch { epoch: last.epoch.max(epoch), time_us: last.time_us.max(time_us) };
                    for table in self.all_tables().into_iter().filter(|table| table.has_pending()) {
                        // The epochs before it had nothing of this table: they stay readable one by one.
                        table.collection().advance(Epoch(epoch.0.saturating_sub(1)));
                        table.seal(epoch)?;
                    }
                }
                LogRecord::Note { .. } => {}
            }
        }
        for table in self.all_tables() {
            // Also of a table with changes in the open epoch: the epochs before it had none of them, and stay readable one by one.
            let known = if table.has_pending() { Epoch(found.0.saturating_sub(1)).min(last.epoch) } else { last.epoch };
            table.collection().advance(known);
            last.epoch = last.epoch.max(table.collection().upper());
        }
        let open = last.epoch.next().max(found);
        self.open.lock().epoch = open;
        self.closed.send_replace(last);
        self.all_sources().iter().for_each(|source| source.settle(Some(last.epoch)));
        if open > last.epoch.next() || last.epoch == Epoch(0) || self.all_tables().iter().any(|table| table.has_pending()) {
            self.open.lock().changed.insert(0);
            self.tick().await?;
        }
        Ok(())
    }

    /// The log has a beginning that fits what was cut from it, and an end that fits what was made of it.
    fn check_log(&self, cut: Epoch) -> Result<()> {
        let removed = self.log.removed_through();
        if removed > cut {
            return Err(self
                .log
                .corrupt(format!("its first files are missing: they went up to epoch {removed}, but it was cut at epoch {cut}"))
                .into());
        }
        for table in self.all_tables() {
            self.log.must_reach(table.collection().upper(), &format!("the table in collections/{}", table.id))?;
        }
        Ok(())
    }

    /// A source that is not registered was dropped, or could not be opened again.
    fn recover_sources(&self, epoch: Epoch, bindings: &[Binding], watermarks: &[SourceWatermark]) -> Result<()> {
        for binding in bindings {
            if let Some(source) = self.source(binding.source) {
                source.record(epoch, binding)?;
            }
        }
        for watermark in watermarks {
            if let Some(source) = self.source(watermark.source) {
                source.pass(epoch, watermark.micros);
            }
        }
        Ok(())
    }

    /// The epoch up to which every table has the log's changes on disk.
    pub fn tables_durable(&self) -> Epoch {
        let durable = self.all_tables().into_iter().map(|table| table.collection().base_durable());
        durable.chain([self.closed().epoch]).min().unwrap_or_default()
    }

    /// Forgets epochs up to `upto`, which no table and no job needs any more: what sources bound in them, and, in whole segments, the log.
    /// Where sources stood at `upto` is kept.
    ///
    /// # Errors
    /// When the log cannot be written or its files not be removed; nothing is lost then.
    pub async fn forget(&self, upto: Epoch) -> Result<()> {
        let closed = self.closed();
        if upto > closed.epoch {
            return Err(EngineError::Internal(format!("epoch {upto} is not closed, it cannot be forgotten")));
        }
        for source in self.all_sources() {
            source.forget_below(upto);
        }
        if !self.log.can_cut_below(upto.next()) {
            return Ok(());
        }
        let mut snapshot = SourcesSnapshot::new(upto, closed.time_us);
        for source in self.all_sources() {
            snapshot.sources.insert(source.id, source.snapshot(upto));
        }
        let note = snapshot.record()?;
        let log = self.log.clone();
        let cut = tokio::task::spawn_blocking(move || {
            log.durable_blocking(log.append(&[note]))?;
            log.cut_below(upto.next())
        });
        cut.await.map_err(|error| EngineError::Internal(format!("cutting the epoch log: {error}")))??;
        tracing::info!(%upto, bytes = self.log.bytes(), "cut the epoch log");
        Ok(())
    }
}
