//! Sources as the coordinator sees them: their splits, the gates of all readers, and what each epoch bound.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use millpond_storage::{epoch::Epoch, epoch_log::Binding};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;

use super::snapshot::SourceSnapshot;
use crate::{
    error::{EngineError, Result},
    scan::{
        gate::{GateReading, SplitGate},
        source::BoundSplit,
    },
    source::{LateRows, Offset, Source, Split, SplitReader, WatermarkSpec},
};

/// A registered source.
pub struct SourceHandle {
    /// Catalog id.
    pub id: u64,
    /// Name, for messages.
    pub name: String,
    /// Event time.
    pub watermark: Option<WatermarkSpec>,
    /// What happens to late rows.
    pub late_rows: LateRows,
    /// A row that cannot be decoded fails the job.
    pub fail_on_bad_rows: bool,
    source: Arc<dyn Source>,
    splits: RwLock<Vec<Split>>,
    complete: AtomicBool,
    changed: Notify,
    gates: Mutex<Gates>,
    history: RwLock<History>,
    rows: AtomicU64,
}

#[derive(Default)]
struct Gates {
    list: Vec<Weak<SplitGate>>,
    /// A tick has taken its readings and is not decided yet: a gate that comes now must wait for it.
    ticking: bool,
    /// The newest closed epoch.
    closed: Epoch,
}

impl Gates {
    fn live(&self) -> Vec<Arc<SplitGate>> {
        self.list.iter().filter_map(Weak::upgrade).collect()
    }
}

/// What was bound when. Grows by one entry per split and epoch that moved it; cut below what any job still needs.
#[derive(Default)]
struct History {
    splits: BTreeMap<String, Vec<(Epoch, BoundSplit)>>,
    /// The maximum when the source has ended.
    watermarks: Vec<(Epoch, i64)>,
    /// Nothing is known of epochs before it.
    known_from: Epoch,
}

impl History {
    fn newest(&self, split: &str) -> Option<BoundSplit> {
        self.splits.get(split)?.last().map(|(_, bound)| *bound)
    }

    fn watermark(&self) -> Option<i64> {
        self.watermarks.last().map(|(_, micros)| *micros)
    }
}

impl SourceHandle {
    /// Registers a source: its splits are discovered.
    ///
    /// # Errors
    /// What the connector says when the target cannot be listed.
    pub async fn open(id: u64, name: &str, source: Arc<dyn Source>, settings: SourceSettings) -> Result<Arc<Self>> {
        let discovery = source.discover().await?;
        Ok(Arc::new(Self {
            id,
            name: name.to_string(),
            watermark: settings.watermark,
            late_rows: settings.late_rows,
            fail_on_bad_rows: settings.fail_on_bad_rows,
            source,
            splits: RwLock::new(discovery.splits),
            complete: AtomicBool::new(discovery.complete),
            changed: Notify::new(),
            gates: Mutex::default(),
            history: RwLock::default(),
            rows: AtomicU64::new(0),
        }))
    }

    /// Looks for new splits; those known keep their number.
    pub async fn rediscover(&self) -> Result<()> {
        if self.is_complete() {
            return Ok(());
        }
        let discovery = self.source.discover().await?;
        let mut splits = self.splits.write();
        let new: Vec<Split> = {
            let known: HashSet<&str> = splits.iter().map(|split| split.id.as_str()).collect();
            discovery.splits.into_iter().filter(|split| !known.contains(split.id.as_str())).collect()
        };
        let grown = !new.is_empty();
        splits.extend(new);
        drop(splits);
        self.complete.store(discovery.complete, Ordering::Release);
        if grown {
            self.changed.notify_waiters();
        }
        Ok(())
    }

    /// Splits from number `from` on, with their numbers.
    pub fn splits_from(&self, from: usize) -> Vec<(usize, Split)> {
        self.splits.read().iter().cloned().enumerate().skip(from).collect()
    }

    /// Waits until a split is discovered.
    pub async fn splits_changed(&self) {
        self.changed.notified().await;
    }

    /// A reader of one split.
    pub async fn open_split(&self, split: &Split, from: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        self.source.open(split, from, projection).await
    }

    /// The connector.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Whether all rows exist now: bounded splits, none to come, and no pacing.
    pub fn exists_in_full(&self) -> bool {
        self.is_complete() && !self.source.paced() && self.splits.read().iter().all(|split| split.bounded)
    }

    /// Whether no further splits will come: those that are known are all that was promised.
    pub fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// Registers the gate of a reader; it is forgotten when the reader drops it.
    pub fn add_gate(&self, gate: &Arc<SplitGate>) {
        let mut gates = self.gates.lock();
        gates.list.retain(|gate| gate.strong_count() > 0);
        gates.list.push(Arc::downgrade(gate));
        if gates.ticking {
            gate.stop();
        } else {
            gate.settle(gates.closed);
        }
    }

    /// Counts rows emitted by any reader.
    pub fn count_rows(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Rows emitted since start by all readers.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Stops all readers and answers what moved since it was last bound. [`Self::settle`] must follow.
    pub fn bind(&self) -> Vec<Binding> {
        let gates = {
            let mut gates = self.gates.lock();
            gates.ticking = true;
            gates.live()
        };
        let mut furthest: BTreeMap<&str, GateReading> = BTreeMap::new();
        for gate in &gates {
            let reading = gate.stop();
            let best = furthest.entry(&gate.split).or_insert(reading);
            // Of readers equally far one may already know that the split has ended.
            let rank = |r: &GateReading| (r.emitted, r.finished, r.idle);
            if rank(&reading) > rank(best) {
                *best = reading;
            }
        }
        let complete = self.is_complete();
        let history = self.history.read();
        furthest
            .into_iter()
            .filter_map(|(split, reading)| {
                // Where more splits may come, the end of one says nothing of the source's: what it reached still counts.
                let watermark_us = if reading.finished && complete { i64::MAX } else { reading.watermark_us };
                let bound = BoundSplit { end: reading.emitted, watermark_us, idle: reading.idle };
                let before = history.newest(split);
                let behind = before.is_some_and(|before| before.end > bound.end);
                let fresh = before.is_none() && reading.emitted == 0 && !reading.finished && !reading.idle;
                (!behind && !fresh && before != Some(bound)).then(|| encode_binding(self.id, split, bound))
            })
            .collect()
    }

    /// The tick is decided: `closed` is the epoch it closes, if any. Readers emit nothing more of it.
    pub fn settle(&self, closed: Option<Epoch>) {
        let mut gates = self.gates.lock();
        gates.ticking = false;
        gates.closed = gates.closed.max(closed.unwrap_or_default());
        for gate in gates.live() {
            gate.settle(gates.closed);
        }
    }

    /// Records what an epoch bound (also at recovery).
    pub fn record(&self, epoch: Epoch, binding: &Binding) -> Result<()> {
        let bound = decode_binding(binding)?;
        self.history.write().splits.entry(binding.split.clone()).or_default().push((epoch, bound));
        Ok(())
    }

    /// The watermark that the source passes with these bindings, if it is a new one: the minimum over the splits that are not idle, and the
    /// maximum of what they reached when all are, since then none of them holds back another. A split of which nothing was bound holds all
    /// back. A source that has ended passes the maximum. What is found goes into the log with the bindings, since it depends on the splits
    /// that are known now.
    pub fn watermark_after(&self, bindings: &[Binding]) -> Option<i64> {
        let splits = self.splits.read();
        let complete = self.is_complete();
        let history = self.history.read();
        let mut latest: BTreeMap<&str, BoundSplit> =
            splits.iter().filter_map(|split| Some((split.id.as_str(), history.newest(&split.id)?))).collect();
        for binding in bindings {
            if let Ok(bound) = decode_binding(binding) {
                latest.insert(&binding.split, bound);
            }
        }
        let latest = || splits.iter().map(|split| latest.get(split.id.as_str()));
        let finished = complete && latest().all(|bound| bound.is_some_and(|bound| bound.watermark_us == i64::MAX && bound.idle));
        let is_idle = |bound: Option<&BoundSplit>| bound.is_some_and(|bound| bound.idle);
        let passed = if finished {
            Some(i64::MAX)
        } else {
            // The maximum stands for an end, which the source as a whole has not reached.
            let reached = |bound: Option<&BoundSplit>| bound.map_or(i64::MIN, |bound| bound.watermark_us);
            let furthest = latest().map(reached).filter(|micros| *micros != i64::MAX).max();
            let held = latest().filter(|bound| !is_idle(*bound)).map(reached).min();
            held.or(furthest).filter(|micros| !matches!(*micros, i64::MIN | i64::MAX))
        };
        passed.filter(|micros| history.watermark().is_none_or(|last| *micros > last))
    }

    /// The source passes a watermark with an epoch, all of whose bindings were recorded.
    pub fn pass(&self, epoch: Epoch, micros: i64) {
        self.history.write().watermarks.push((epoch, micros));
    }

    /// What belongs to epoch `at` and those before it.
    pub fn bound_at(&self, at: Epoch) -> BTreeMap<String, BoundSplit> {
        let history = self.history.read();
        history.splits.iter().filter_map(|(split, entries)| latest(entries, at).map(|bound| (split.clone(), bound))).collect()
    }

    /// The newest end that was bound of a split.
    pub fn bound_end(&self, split: &str) -> Option<Offset> {
        self.history.read().newest(split).map(|bound| bound.end)
    }

    /// The source's watermark at epoch `at`.
    pub fn watermark_at(&self, at: Epoch) -> Option<i64> {
        latest(&self.history.read().watermarks, at)
    }

    /// Whether any split moved in `(after, upto]`.
    pub fn moved(&self, after: Epoch, upto: Epoch) -> bool {
        self.history.read().splits.values().any(|entries| {
            let position = entries.partition_point(|(epoch, _)| *epoch <= upto);
            position > 0 && entries[position - 1].0 > after
        })
    }

    /// The epoch that holds the last row of a bounded source.
    pub fn finished(&self) -> Option<Epoch> {
        self.history.read().watermarks.last().filter(|(_, micros)| *micros == i64::MAX).map(|(epoch, _)| *epoch)
    }

    /// Drops what only epochs below `epoch` need.
    pub fn forget_below(&self, epoch: Epoch) {
        let mut history = self.history.write();
        for entries in history.splits.values_mut() {
            let keep_from = entries.partition_point(|(at, _)| *at <= epoch).saturating_sub(1);
            entries.drain(..keep_from);
        }
        let keep_from = history.watermarks.partition_point(|(at, _)| *at <= epoch).saturating_sub(1);
        history.watermarks.drain(..keep_from);
        history.known_from = history.known_from.max(epoch);
    }

    /// The oldest epoch of which is known what it bound.
    pub fn known_from(&self) -> Epoch {
        self.history.read().known_from
    }

    /// Where it stood at an epoch.
    pub(super) fn snapshot(&self, at: Epoch) -> SourceSnapshot {
        let history = self.history.read();
        let splits = history.splits.iter().filter_map(|(split, entries)| Some((split.clone(), newest_at(entries, at)?)));
        SourceSnapshot::new(newest_at(&history.watermarks, at), splits)
    }

    /// Stands where it stood at an epoch; what came later is recorded then.
    pub(super) fn restore(&self, epoch: Epoch, snapshot: &SourceSnapshot) {
        let mut history = self.history.write();
        history.splits = snapshot.splits().map(|(split, bound)| (split.clone(), vec![bound])).collect();
        history.watermarks = snapshot.watermark().into_iter().collect();
        history.known_from = epoch;
    }

    /// Splits with where they stand, for `millpond.sources`.
    pub fn status(&self) -> Vec<(Split, Option<BoundSplit>)> {
        let history = self.history.read();
        self.splits.read().iter().map(|split| (split.clone(), history.newest(&split.id))).collect()
    }
}

/// Settings of a source that concern its readers.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Event time.
    pub watermark: Option<WatermarkSpec>,
    /// What happens to late rows.
    pub late_rows: LateRows,
    /// A row that cannot be decoded fails the job.
    pub fail_on_bad_rows: bool,
}

fn newest_at<T: Copy>(entries: &[(Epoch, T)], at: Epoch) -> Option<(Epoch, T)> {
    let position = entries.partition_point(|(epoch, _)| *epoch <= at);
    position.checked_sub(1).map(|last| entries[last])
}

fn latest<T: Copy>(entries: &[(Epoch, T)], at: Epoch) -> Option<T> {
    newest_at(entries, at).map(|(_, value)| value)
}

/// `end` of a binding: offset and watermark, eight bytes each.
fn encode_binding(source: u64, split: &str, bound: BoundSplit) -> Binding {
    let mut end = Vec::with_capacity(16);
    end.extend_from_slice(&bound.end.to_be_bytes());
    end.extend_from_slice(&bound.watermark_us.to_be_bytes());
    Binding { source, split: split.to_string(), end, idle: bound.idle }
}

fn decode_binding(binding: &Binding) -> Result<BoundSplit> {
    let bytes: [u8; 16] = binding.end.as_slice().try_into().map_err(|_| EngineError::Internal("a binding has 16 bytes".into()))?;
    let (offset, watermark) = bytes.split_at(8);
    let offset = u64::from_be_bytes(offset.try_into().expect("eight bytes"));
    let watermark_us = i64::from_be_bytes(watermark.try_into().expect("eight bytes"));
    Ok(BoundSplit { end: offset, watermark_us, idle: binding.idle })
}
