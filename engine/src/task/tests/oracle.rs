//! The input of a run, and what must come of it.

use std::collections::BTreeMap;

use millpond_storage::epoch::Epoch;
use rand::{Rng, rngs::StdRng};

/// Rows of the operator's output: (key, value) -> how often.
pub(super) type Net = BTreeMap<(i64, i64), i64>;

/// A row of an input: key, value.
pub(super) type InputRow = (i64, i64);

/// See the module.
pub(super) struct Input {
    /// Epochs that have a barrier.
    pub(super) barriers: Vec<Epoch>,
    /// Rows of each split, by source and split, with their epochs.
    splits: Vec<Vec<Vec<(Epoch, InputRow)>>>,
}

impl Input {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        let mut barriers = Vec::new();
        let mut epoch = 0;
        for _ in 0..rng.random_range(3..14) {
            epoch += rng.random_range(1..4);
            barriers.push(Epoch(epoch));
        }
        let keys = rng.random_range(1..20);
        let mut splits = Vec::new();
        for _ in 0..2 {
            let count = rng.random_range(1..4);
            splits.push((0..count).map(|_| split(rng, epoch, keys)).collect());
        }
        Self { barriers, splits }
    }

    pub(super) fn last_barrier(&self) -> Epoch {
        self.barriers.last().copied().unwrap_or_default()
    }

    /// Splits of a source.
    pub(super) fn split_count(&self, source: usize) -> usize {
        self.splits[source].len()
    }

    /// How many rows of a split belong to epochs up to `epoch`.
    pub(super) fn bound(&self, source: usize, split: usize, epoch: Epoch) -> usize {
        self.splits[source][split].partition_point(|(of, _)| *of <= epoch)
    }

    /// Rows of a split.
    pub(super) fn rows(&self, source: usize, split: usize, from: usize, to: usize) -> Vec<InputRow> {
        self.splits[source][split][from..to].iter().map(|(_, row)| *row).collect()
    }

    /// The event time that a source passes with an epoch.
    pub(super) fn watermark(epoch: Epoch) -> i64 {
        epoch.0 as i64 * 10
    }

    /// What the operator emits in the epochs of one barrier.
    pub(super) fn expected(&self, barrier: Epoch) -> Net {
        let before = self.barriers.iter().copied().filter(|other| *other < barrier).max().unwrap_or_default();
        let (mut old, mut new, mut net) = (BTreeMap::new(), BTreeMap::new(), Net::new());
        for (source, splits) in self.splits.iter().enumerate() {
            for (epoch, (key, value)) in splits.iter().flatten() {
                if *epoch <= before {
                    *old.entry(*key).or_insert(0) += value;
                }
                if *epoch <= barrier {
                    *new.entry(*key).or_insert(0) += value;
                }
                if source == 0 && *epoch > before && *epoch <= barrier {
                    *net.entry((*key, -1 - value)).or_default() += 1;
                }
            }
        }
        for (key, sum) in &new {
            if old.get(key) != Some(sum) {
                *net.entry((*key, *sum)).or_default() += 1;
                if let Some(old) = old.get(key) {
                    *net.entry((*key, *old)).or_default() -= 1;
                }
            }
        }
        net.retain(|_, count| *count != 0);
        net
    }
}

fn split(rng: &mut StdRng, epochs: u64, keys: i64) -> Vec<(Epoch, InputRow)> {
    let mut rows = Vec::new();
    for epoch in 1..=epochs {
        for _ in 0..rng.random_range(0..6) {
            rows.push((Epoch(epoch), (rng.random_range(0..keys), rng.random_range(1..100))));
        }
    }
    rows
}
