//! Reads: which epoch a statement is served at.
//!
//! The default is linearizable per relation: a read is not below the last acknowledged write to any table under what is read, nor below what any
//! completed read of the same relations has seen. Both floors survive a restart, because after one a default read waits for the last closed
//! epoch of the log.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use millpond_storage::{
    collection::{Collection, Hold},
    epoch::Epoch,
};

use super::{Coordinator, table::TableHandle};
use crate::error::{EngineError, Result};

/// How fresh a read must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Freshness {
    /// The newest common epoch, without waiting.
    Any,
    /// Not below the last acknowledged write to any table under what is read, nor below what was read before.
    #[default]
    Default,
    /// Not below the last acknowledged write to any table at all, and from no job that has failed.
    Strict,
}

/// A relation as readers see it.
pub struct Readable {
    /// Catalog id.
    pub id: u64,
    /// Name, for messages.
    pub name: String,
    /// Contents.
    pub collection: Arc<Collection>,
    /// Tables under it, itself included.
    pub tables: Vec<Arc<TableHandle>>,
    /// Jobs under it, its own included.
    pub jobs: Vec<u64>,
    /// Highest epoch a completed read was served at.
    pub last_read: AtomicU64,
}

/// The epoch of a read, kept readable while this lives.
pub struct ReadPoint {
    /// The epoch.
    pub epoch: Epoch,
    /// One per relation.
    pub holds: Vec<Hold>,
}

impl Coordinator {
    /// The epoch at which all `relations` are readable and that satisfies `freshness`; waits for it up to `timeout`.
    ///
    /// # Errors
    /// 55000 after the timeout, naming the relation that is behind and by how much.
    pub async fn read_epoch(&self, relations: &[Arc<Readable>], freshness: Freshness, timeout: Duration) -> Result<ReadPoint> {
        let floor = self.floor(relations, freshness);
        self.wait_for(relations, floor, timeout, || read_point(relations, floor, self.closed().epoch)).await
    }

    /// All `relations` at `epoch`; waits up to `timeout` for those that have not come to it.
    ///
    /// # Errors
    /// 55000 after the timeout, and at once when a relation can no longer be read at the epoch, or never could.
    pub async fn read_at(&self, relations: &[Arc<Readable>], epoch: Epoch, timeout: Duration) -> Result<ReadPoint> {
        self.wait_for(relations, epoch, timeout, || point_at(relations, epoch)).await
    }

    async fn wait_for(
        &self,
        relations: &[Arc<Readable>],
        floor: Epoch,
        timeout: Duration,
        find: impl Fn() -> Result<Option<ReadPoint>>,
    ) -> Result<ReadPoint> {
        let deadline = tokio::time::Instant::now() + timeout;
        let mut pulse = self.pulse();
        loop {
            pulse.mark_unchanged();
            if let Some(point) = find()? {
                for relation in relations {
                    relation.last_read.fetch_max(point.epoch.0, Ordering::AcqRel);
                }
                return Ok(point);
            }
            if self.closed().epoch < floor {
                self.request_tick();
            }
            if tokio::time::timeout_at(deadline, pulse.changed()).await.is_err() {
                return Err(behind(relations, floor));
            }
        }
    }

    /// An epoch that has every change to any table that was acknowledged by now, and is not below the last closed one: no job has passed it.
    pub fn newest_epoch(&self) -> Epoch {
        self.last_acknowledged().max(self.closed().epoch)
    }

    fn last_acknowledged(&self) -> Epoch {
        self.all_tables().iter().map(|table| table.last_acknowledged()).max().unwrap_or_default()
    }

    /// The newest epoch not below what a default read of `relations` has to show at which every one of `others` can be read as well.
    pub fn common_epoch(&self, relations: &[Arc<Readable>], others: &[Arc<Readable>]) -> Result<Option<ReadPoint>> {
        read_point(others, self.floor(relations, Freshness::Default), self.closed().epoch)
    }

    fn floor(&self, relations: &[Arc<Readable>], freshness: Freshness) -> Epoch {
        match freshness {
            Freshness::Any => Epoch(0),
            Freshness::Default => relations
                .iter()
                .flat_map(|relation| {
                    let read = Epoch(relation.last_read.load(Ordering::Acquire));
                    relation.tables.iter().map(|table| table.last_acknowledged()).chain([read])
                })
                .max()
                .unwrap_or_default(),
            Freshness::Strict => {
                let read = relations.iter().map(|relation| Epoch(relation.last_read.load(Ordering::Acquire))).max();
                read.unwrap_or_default().max(self.last_acknowledged())
            }
        }
    }
}

/// The newest epoch not below `floor` at which every relation is readable.
fn read_point(relations: &[Arc<Readable>], floor: Epoch, closed: Epoch) -> Result<Option<ReadPoint>> {
    let Some(newest) = relations.iter().map(|relation| relation.collection.upper()).min() else {
        return Ok(Some(ReadPoint { epoch: closed, holds: Vec::new() }));
    };
    let oldest = relations.iter().map(|relation| relation.collection.since()).max().unwrap_or_default().max(floor);
    let mut epoch = newest;
    while epoch >= oldest {
        if relations.iter().all(|relation| relation.collection.readable_at(epoch)) {
            let holds: Result<Vec<Hold>, _> = relations.iter().map(|relation| relation.collection.hold(epoch)).collect();
            // A fold may have overtaken the look; then a newer epoch will do.
            return Ok(holds.ok().map(|holds| ReadPoint { epoch, holds }));
        }
        let Some(below) = epoch.0.checked_sub(1) else { break };
        epoch = Epoch(below);
    }
    Ok(None)
}

/// All relations at one epoch, once each has come to it.
fn point_at(relations: &[Arc<Readable>], epoch: Epoch) -> Result<Option<ReadPoint>> {
    if relations.iter().any(|relation| relation.collection.upper() < epoch) {
        return Ok(None);
    }
    let hold = |relation: &Arc<Readable>| {
        let hold = relation.collection.readable_at(epoch).then(|| relation.collection.hold(epoch).ok()).flatten();
        hold.ok_or_else(|| EngineError::User {
            sqlstate: "55000",
            message: format!("relation \"{}\" cannot be read at epoch {epoch}, which this transaction reads", relation.name),
            hint: Some("Start a new transaction.".into()),
        })
    };
    let holds: Result<Vec<Hold>> = relations.iter().map(hold).collect();
    Ok(Some(ReadPoint { epoch, holds: holds? }))
}

fn behind(relations: &[Arc<Readable>], floor: Epoch) -> EngineError {
    let slowest = relations.iter().min_by_key(|relation| relation.collection.upper());
    let Some(slowest) = slowest else { return EngineError::Internal("a read of no relation does not wait".into()) };
    let upper = slowest.collection.upper();
    EngineError::User {
        sqlstate: "55000",
        message: format!(
            "relation \"{}\" is not up to date: it has reached epoch {upper}, the read needs {floor} ({} epochs behind)",
            slowest.name,
            floor.0.saturating_sub(upper.0)
        ),
        hint: Some("See millpond.jobs for what holds it back, or SET read_freshness = 'any'.".into()),
    }
}
