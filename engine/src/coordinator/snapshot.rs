//! Where all sources stood at one epoch: what is kept of the epochs that are cut from the log. It is written as a note, which survives cuts.

use std::collections::BTreeMap;

use millpond_storage::{epoch::Epoch, epoch_log::LogRecord, error::StorageError};
use serde::{Deserialize, Serialize};

use crate::{
    error::{EngineError, Result},
    scan::source::BoundSplit,
};

/// Key of the log's note.
const KEY: &str = "sources";

/// All sources at an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourcesSnapshot {
    /// The epoch. Records of the log up to it are in here.
    epoch: u64,
    /// A time that is not before that of any epoch up to it, microseconds since 1970.
    pub(super) time_us: i64,
    /// By id.
    pub(super) sources: BTreeMap<u64, SourceSnapshot>,
}

/// One source at an epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceSnapshot {
    /// The epoch of its last watermark, and that watermark; the maximum when the source has ended.
    watermark: Option<(u64, i64)>,
    splits: BTreeMap<String, SplitSnapshot>,
}

/// How far a split was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SplitSnapshot {
    epoch: u64,
    end: u64,
    watermark_us: i64,
    idle: bool,
}

impl SourcesSnapshot {
    pub(super) fn new(epoch: Epoch, time_us: i64) -> Self {
        Self { epoch: epoch.0, time_us, sources: BTreeMap::new() }
    }

    pub(super) fn epoch(&self) -> Epoch {
        Epoch(self.epoch)
    }

    /// The newest one in the log; an empty one of epoch 0 if there is none.
    ///
    /// # Errors
    /// Corrupt, if it cannot be read.
    pub(super) fn newest(records: &[LogRecord]) -> Result<Self> {
        let note = records.iter().rev().find_map(|record| match record {
            LogRecord::Note { key, value } if key == KEY => Some(value),
            LogRecord::Note { .. } | LogRecord::Dml { .. } | LogRecord::Close { .. } => None,
        });
        let Some(note) = note else { return Ok(Self::default()) };
        serde_json::from_slice(note).map_err(|error| {
            StorageError::Corrupt { file: "epoch log".into(), detail: format!("its note \"{KEY}\" cannot be read: {error}") }.into()
        })
    }

    /// The note.
    pub(super) fn record(&self) -> Result<LogRecord> {
        let value = serde_json::to_vec(self).map_err(|error| EngineError::Internal(format!("positions of sources: {error}")))?;
        Ok(LogRecord::Note { key: KEY.into(), value })
    }
}

impl SourceSnapshot {
    pub(super) fn new(watermark: Option<(Epoch, i64)>, splits: impl Iterator<Item = (String, (Epoch, BoundSplit))>) -> Self {
        let split = |(epoch, bound): (Epoch, BoundSplit)| SplitSnapshot {
            epoch: epoch.0,
            end: bound.end,
            watermark_us: bound.watermark_us,
            idle: bound.idle,
        };
        Self {
            watermark: watermark.map(|(epoch, micros)| (epoch.0, micros)),
            splits: splits.map(|(name, bound)| (name, split(bound))).collect(),
        }
    }

    pub(super) fn watermark(&self) -> Option<(Epoch, i64)> {
        self.watermark.map(|(epoch, micros)| (Epoch(epoch), micros))
    }

    pub(super) fn splits(&self) -> impl Iterator<Item = (&String, (Epoch, BoundSplit))> {
        let bound = |split: &SplitSnapshot| BoundSplit { end: split.end, watermark_us: split.watermark_us, idle: split.idle };
        self.splits.iter().map(move |(name, split)| (name, (Epoch(split.epoch), bound(split))))
    }
}
