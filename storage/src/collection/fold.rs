//! Folding deltas into the base, in the background.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{Base, Collection, State, delta::StoredDelta, keyed::BaseMeta, retained::Retained};
use crate::{epoch::Epoch, error::Result};

/// Deltas stay apart at least this long, so that collections that move at different speed share epochs.
const FOLD_AGE: Duration = Duration::from_secs(1);
/// One batch takes so many bytes of deltas, but at least one delta.
const FOLD_BYTES: usize = 32 << 20;
/// Rows of an append-only collection are moved to a segment when they take so many bytes or have waited so long: a segment costs two fsyncs.
const SEGMENT_FOLD_BYTES: usize = 8 << 20;
const SEGMENT_FOLD_AGE: Duration = Duration::from_secs(30);
/// The base is flushed when so many bytes of folds, or folds so old, are in memory only.
const FLUSH_BYTES: u64 = 64 << 20;
const FLUSH_AGE: Duration = Duration::from_secs(30);

/// What folding remembers.
#[derive(Debug, Default)]
pub(super) struct FoldState {
    /// When the first fold was written that is not flushed.
    unflushed_since: Option<Duration>,
}

/// How eagerly to fold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eagerness {
    /// What has become old, or all if memory is short.
    WhenDue,
    /// All that no hold needs.
    Now,
}

impl Collection {
    /// Moves deltas that are old enough and below every hold into the base; flushes the base now and then, and removes log files that it contains.
    /// To be called about every second.
    pub fn fold(&self) -> Result<()> {
        self.fold_with(Eagerness::WhenDue)
    }

    /// Moves all deltas below every hold into the base, whatever their age, and makes the base durable.
    pub fn fold_now(&self) -> Result<()> {
        self.fold_with(Eagerness::Now)
    }

    /// Nobody will read what no hold needs: from now on it is forgotten where it would be folded, and so is what has been folded already.
    pub fn keep_only_held(&self) {
        self.keeps_only_held.store(true, Ordering::Release);
    }

    /// Nothing is folded after this, and a fold that was under way has ended: another life of the collection may begin in this process, which reads how
    /// far the base has come.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        drop(self.folding.lock());
    }

    fn fold_with(&self, eagerness: Eagerness) -> Result<()> {
        let mut fold_state = self.folding.lock();
        if self.durable_deltas
            && let Err(error) = self.write_waiting(&mut self.log.lock())
            && !error.is_disk_full()
        {
            return Err(error);
        }
        let mut upto = None;
        while let Some((deltas, meta)) = self.take_foldable(eagerness, &mut upto) {
            if self.keeps_only_held.load(Ordering::Acquire) {
                let meta = self.let_go(&deltas, meta)?;
                fold_state.unflushed_since.get_or_insert_with(|| self.now());
                self.drop_folded(meta);
                continue;
            }
            let first_ordinal = deltas[0].links.first_ordinal;
            let stored = deltas.iter().map(|delta| delta.load(&self.layout)).collect::<Result<Vec<Arc<StoredDelta>>>>()?;
            // Who drops or closes the collection waits for this to end.
            let is_wanted = || !self.is_closed.load(Ordering::Acquire);
            let is_folded = match &self.base {
                Base::Keyed(base) => base.fold(stored, meta, &is_wanted)?,
                Base::Append(base) => base.fold(&stored, first_ordinal).map(|()| true)?,
            };
            if !is_folded {
                return Ok(());
            }
            fold_state.unflushed_since.get_or_insert_with(|| self.now());
            self.drop_folded(meta);
        }
        self.flush_base(&mut fold_state, eagerness)?;
        let on_disk = self.flushed_epoch();
        let mut log = self.log.lock();
        // Of a table the log is only where deltas went that memory had no room for: it goes with the deltas.
        let contained = if self.durable_deltas { on_disk } else { self.state.read().base.epoch };
        if self.state.read().destroyed { Ok(()) } else { log.remove_through(contained) }
    }

    /// The next deltas to be folded together, and the base's own words after them. `upto` is where this fold ends, once it has begun.
    fn take_foldable(&self, eagerness: Eagerness, upto: &mut Option<Epoch>) -> Option<(Vec<Retained>, BaseMeta)> {
        let now = self.now();
        let mut state = self.state.write();
        if self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        // One that is being filled may be rewound: who fills it says how far.
        let unheld = if state.published_at.is_some() { Epoch(u64::MAX) } else { Epoch(0) };
        let held = state.holds.lowest().unwrap_or(unheld);
        let eager = eagerness == Eagerness::Now || self.memory.over_budget();
        let is_due = |delta: &Retained| eager || delta.sealed_at + FOLD_AGE <= now;
        // What is not in the log yet would be a gap in it.
        let is_written = |delta: &Retained| !self.durable_deltas || delta.place.is_some();
        let due = state.retained.iter().take_while(|delta| delta.to <= held && is_due(delta) && is_written(delta)).count();
        if due == 0 || (upto.is_none() && !eager && !self.is_worth_a_segment(&state, due, now)) {
            return None;
        }
        let end = *upto.get_or_insert(state.retained[due - 1].to);
        let mut bytes = 0;
        let batch: Vec<Retained> = state
            .retained
            .iter()
            .take(due)
            .take_while(|delta| {
                let fits = delta.to <= end && (bytes == 0 || bytes + delta.bytes <= FOLD_BYTES);
                bytes += delta.bytes;
                fits
            })
            .cloned()
            .collect();
        let last = batch.last()?.to;
        // From now on no one may ask for what will be gone.
        state.since = last;
        let meta = BaseMeta {
            epoch: last,
            rows: state.base.rows + batch.iter().map(|delta| delta.growth).sum::<i64>(),
            watermark_us: batch.iter().rev().find_map(|delta| delta.watermark_us).or(state.base.watermark_us),
        };
        Some((batch, meta))
    }

    /// The base comes to the end of these deltas without their rows, and without those it had. Answers its own words then.
    fn let_go(&self, deltas: &[Retained], meta: BaseMeta) -> Result<BaseMeta> {
        match &self.base {
            Base::Keyed(base) => {
                let base_rows = self.state.read().base.rows;
                base.let_go(BaseMeta { rows: base_rows, ..meta })?;
                Ok(BaseMeta { rows: 0, ..meta })
            }
            // Rows are numbered, whether they are kept or not.
            Base::Append(base) => {
                let end = deltas.last().map_or(0, Retained::end_ordinal);
                base.let_go(meta.epoch, meta.watermark_us, end)?;
                Ok(meta)
            }
        }
    }

    /// Keyed bases take anything; a segment should not be too small.
    fn is_worth_a_segment(&self, state: &State, due: usize, now: Duration) -> bool {
        let due = || state.retained.iter().take(due);
        matches!(self.base, Base::Keyed(_))
            || due().map(|delta| delta.bytes).sum::<usize>() >= SEGMENT_FOLD_BYTES
            || due().any(|delta| delta.sealed_at + SEGMENT_FOLD_AGE <= now)
    }

    /// The base contains these deltas now.
    fn drop_folded(&self, meta: BaseMeta) {
        let mut state = self.state.write();
        state.base = meta;
        while state.retained.front().is_some_and(|delta| delta.to <= meta.epoch) {
            let folded = state.retained.pop_front().expect("it was just seen");
            if folded.stored.is_some() {
                self.memory.shrink(folded.bytes);
            }
        }
    }

    fn flush_base(&self, fold_state: &mut FoldState, eagerness: Eagerness) -> Result<()> {
        let Base::Keyed(base) = &self.base else { return Ok(()) };
        let Some(since) = fold_state.unflushed_since else { return Ok(()) };
        let is_due = eagerness == Eagerness::Now || since + FLUSH_AGE <= self.now() || base.store().unflushed_bytes() >= FLUSH_BYTES;
        if is_due {
            base.store().flush()?;
            fold_state.unflushed_since = None;
        }
        Ok(())
    }
}
