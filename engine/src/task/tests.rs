//! A seeded simulation of alignment, of checkpoints that do not wait, of restarts from them at another parallelism, and of single tasks that fail
//! while the others go on.
//!
//! Two scans feed a keyed operator over hash edges, and it a root over another one. Everything but the operator's arithmetic is the real thing:
//! channels with their lanes, alignment, watermark minima, segments, restored channels, the collector. A step is one message of one subtask;
//! a seed decides which subtask moves, which stand still for a while, when checkpoints are asked for and switched, which task fails in the midst of what, and when the job dies. What is
//! sealed at every barrier, rows and watermark, must be a function of the input alone. As in the real thing, what is sealed is flushed before a
//! checkpoint counts, and sealing an epoch again changes nothing.

mod life;
mod oracle;

use std::collections::BTreeMap;

use millpond_storage::{checkpoint::InFlight, epoch::Epoch};
use rand::{Rng, SeedableRng, rngs::StdRng};

use self::{life::Life, oracle::Input};
use super::restart::{CutNote, Restart};

/// Fragments: two scans, the operator, the root.
const FRAGMENTS: usize = 4;
const OPERATOR: usize = 2;
const ROOT: usize = 3;

/// What of a key the operator keeps.
type Sums = BTreeMap<i64, i64>;
/// Keys changed in an epoch that is open: the last epoch closed, and the sum last emitted.
type Open = BTreeMap<i64, (Epoch, Option<i64>)>;
/// Rows emitted of each (source, split).
type Positions = BTreeMap<(usize, usize), usize>;

/// A complete checkpoint.
#[derive(Clone, Default)]
struct Saved {
    epoch: Epoch,
    cut: Option<(CutNote, Vec<InFlight>)>,
    sums: Sums,
    open: Open,
    positions: Positions,
}

impl Saved {
    fn restart(&self) -> Restart {
        match &self.cut {
            None => Restart::aligned(FRAGMENTS, self.epoch),
            Some((note, flights)) => {
                Restart::unaligned(FRAGMENTS, note.clone(), flights.clone()).expect("it is of a graph with as many fragments")
            }
        }
    }
}

/// How far the job's collection is sealed, and how far that survives a crash.
#[derive(Default)]
struct Sealed {
    upper: Epoch,
    durable: Epoch,
}

/// What a run went through.
#[derive(Debug, Default)]
struct Seen {
    unaligned: usize,
    aligned: usize,
    restarts_from_unaligned: usize,
    in_flight_rows: u64,
    failures: usize,
}

/// Runs one seed to its end.
fn run(seed: u64, seen: &mut Seen) {
    let mut rng = StdRng::seed_from_u64(seed);
    let input = Input::random(&mut rng);
    let mut saved = Saved::default();
    let mut sealed = Sealed::default();
    let crashes = rng.random_range(0..5);
    for crash in 0..=crashes {
        let parallelism = [1, 2, 3, 5][rng.random_range(0..4)];
        seen.restarts_from_unaligned += usize::from(saved.cut.is_some());
        let mut life = Life::start(seed, &input, &saved, &mut sealed, parallelism);
        let steps = if crash == crashes { usize::MAX } else { rng.random_range(1..1500) };
        let ended = life.run(&mut rng, steps, &mut sealed, &mut saved, seen);
        assert!(ended || crash < crashes, "seed {seed}: not all epochs were sealed");
        if ended {
            break;
        }
        // What was sealed since the last flush may be lost or not.
        sealed.upper = Epoch(rng.random_range(sealed.durable.0..=sealed.upper.0));
    }
    assert_eq!(sealed.upper, input.last_barrier(), "seed {seed}");
}

#[test]
fn checkpoints_that_do_not_wait_restore_to_the_same_epochs() {
    let seeds = std::env::var("MILLPOND_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1000);
    let mut seen = Seen::default();
    if let Some(seed) = std::env::var("MILLPOND_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return run(seed, &mut seen);
    }
    (0..seeds).for_each(|seed| run(seed, &mut seen));
    println!("{seeds} seeds: {seen:?}");
    assert!(
        seen.unaligned > 100
            && seen.aligned > 100
            && seen.restarts_from_unaligned > 100
            && seen.in_flight_rows > 1000
            && seen.failures > 1000,
        "{seen:?}"
    );
}
