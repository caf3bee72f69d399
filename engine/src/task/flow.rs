//! How much a subtask takes of its channels at once, and how much they may hold for it. Pure: it is told the time.

use std::time::Duration;

use super::pace::Pace;
use crate::exchange::{
    debloat::{Debloater, Sample},
    inbox::{ChannelId, Traffic},
};

/// Time in which a subtask is active between two looks at its channels.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The same until the first look.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// See the module.
#[derive(Debug)]
pub(super) struct Flow {
    channels: Vec<ChannelFlow>,
    /// When it began, and for how long it has been idle since.
    began: Duration,
    idle: Duration,
    /// Active time at which the channels are looked at next.
    next_look: Duration,
}

#[derive(Clone, Copy, Debug)]
struct ChannelFlow {
    pace: Pace,
    debloater: Debloater,
    /// Active time up to which its traffic has been taken into account.
    seen: Duration,
}

impl Flow {
    /// Of a subtask that begins now; `target` is the time that debloating aims at.
    pub(super) fn new(channels: usize, now: Duration, target: Duration) -> Self {
        let channel = ChannelFlow { pace: Pace::default(), debloater: Debloater::new(target), seen: Duration::ZERO };
        Self { channels: vec![channel; channels], began: now, idle: Duration::ZERO, next_look: FIRST_LOOK }
    }

    /// Rows to take at once of a channel, where the outputs have `room` for so many of what comes of them.
    pub(super) fn rows(&self, channel: ChannelId, room: usize) -> usize {
        self.channels[channel].pace.rows_within(room)
    }

    /// So many rows of a channel have made `emitted` rows and kept the subtask busy for so long.
    pub(super) fn record(&mut self, channel: ChannelId, rows: usize, emitted: usize, busy: Duration) {
        self.channels[channel].pace.record(rows, emitted, busy);
    }

    /// There was nothing to take for so long.
    pub(super) fn add_idle(&mut self, idle: Duration) {
        self.idle += idle;
    }

    /// Whether it is time to look at the channels.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.active(now) >= self.next_look
    }

    /// Looks at all channels: `traffic` is what has passed on each, `blocked` which wait for the others' barriers. Answers those of which more is
    /// known now.
    pub(super) fn look(&mut self, now: Duration, target: Duration, blocked: &[bool], traffic: &[Traffic]) -> Vec<(ChannelId, Debloater)> {
        let active = self.active(now);
        self.next_look = active + LOOK_EVERY;
        let mut known = Vec::new();
        for (channel, (flow, traffic)) in self.channels.iter_mut().zip(traffic).enumerate() {
            let Traffic { taken, was_full, rows } = *traffic;
            // What stands in a channel of which nothing was taken goes on waiting, unless the channel is only to wait for others.
            if taken > 0 || rows == 0 || blocked[channel] {
                let sample = Sample { rows: taken, active: active.saturating_sub(flow.seen), was_full };
                flow.debloater.record(sample, target);
                flow.seen = active;
                known.push((channel, flow.debloater));
            }
        }
        known
    }

    fn active(&self, now: Duration) -> Duration {
        now.saturating_sub(self.began).saturating_sub(self.idle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_secs(1);

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Looks at channels with this traffic and answers the throughputs of those of which more is known.
    fn look(flow: &mut Flow, at: u64, blocked: &[bool], traffic: &[(usize, bool, usize)]) -> Vec<Option<u64>> {
        let mut found = vec![None; traffic.len()];
        let traffic: Vec<_> =
            traffic.iter().map(|(taken, was_full, rows)| Traffic { taken: *taken, was_full: *was_full, rows: *rows }).collect();
        for (channel, debloater) in flow.look(ms(at), TARGET, blocked, &traffic) {
            found[channel] = debloater.rows_per_second().map(|rate| rate.round() as u64);
        }
        found
    }

    #[test]
    fn idle_time_does_not_make_a_subtask_slow() {
        let mut flow = Flow::new(1, ms(5000), TARGET);
        assert!(!flow.is_due(ms(5009)) && flow.is_due(ms(5010)), "soon for the first time");
        flow.add_idle(ms(900));
        assert!(!flow.is_due(ms(5905)));
        assert_eq!(look(&mut flow, 6000, &[false], &[(100, true, 50)]), [Some(1000)]);
        assert!(!flow.is_due(ms(6099)) && flow.is_due(ms(6100)));
    }

    #[test]
    fn a_channel_that_waits_its_turn_is_as_slow_as_that_and_one_that_waits_for_a_barrier_is_not() {
        let mut flow = Flow::new(3, ms(0), TARGET);
        look(&mut flow, 100, &[false; 3], &[(100, true, 50), (100, true, 50), (100, true, 50)]);
        // For a second nothing is taken of any; the last one has nothing.
        let found = look(&mut flow, 1100, &[false, true, false], &[(0, false, 50), (0, false, 50), (0, false, 0)]);
        assert_eq!(found, [None, Some(1000), Some(1000)]);
        let found = look(&mut flow, 1200, &[false; 3], &[(100, true, 0), (100, true, 50), (100, true, 50)]);
        assert!(found[0].is_some_and(|rate| rate < 250), "100 rows in 1.1 s: {found:?}");
        assert_eq!(found[1..], [Some(1000), Some(1000)]);
    }
}
