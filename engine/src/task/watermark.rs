//! Minimum of event time over the channels of each input port: pure.

use std::collections::BTreeMap;

use crate::message::Watermark;

/// Watermarks of one subtask's ports. A port's watermark of a column is the minimum over its channels, known once every channel has sent one.
///
/// Channels restored from a checkpoint are of an earlier *generation* than those that go on after them; a checkpoint of a job that was restored
/// itself may have several. What a producer had sent in one generation it does not send again in the next. So the newest generation of which
/// all channels have sent a watermark decides, with what later ones have sent; those before it count no longer, those after it do not hold back.
#[derive(Clone, Debug)]
pub struct WatermarkMinimum {
    /// Per port, the channels of each generation.
    ports: Vec<BTreeMap<u32, Vec<usize>>>,
    port_of: Vec<usize>,
    generation_of: Vec<u32>,
    seen: BTreeMap<(usize, usize), Progress>,
}

/// What is known of a column of a port.
#[derive(Clone, Debug, Default)]
struct Progress {
    by_channel: BTreeMap<usize, i64>,
    sent: Option<i64>,
}

impl WatermarkMinimum {
    /// `channels` says which port each channel feeds, and of which generation it is.
    pub fn new(channels: impl IntoIterator<Item = (usize, u32)>) -> Self {
        let (port_of, generation_of): (Vec<usize>, Vec<u32>) = channels.into_iter().unzip();
        let mut ports = vec![BTreeMap::new(); port_of.iter().max().map_or(0, |port| port + 1)];
        for (channel, (port, generation)) in port_of.iter().zip(&generation_of).enumerate() {
            let of_port: &mut BTreeMap<u32, Vec<usize>> = &mut ports[*port];
            of_port.entry(*generation).or_default().push(channel);
        }
        Self { ports, port_of, generation_of, seen: BTreeMap::new() }
    }

    /// What a channel had sent in an earlier life. Counts once all are told.
    pub fn restore(&mut self, channel: usize, watermark: Watermark) {
        let progress = self.seen.entry((self.port_of[channel], watermark.column)).or_default();
        progress.by_channel.insert(channel, watermark.micros);
    }

    /// The minima that are known from an earlier life: port, watermark.
    pub fn restored(&mut self) -> Vec<(usize, Watermark)> {
        let mut known = Vec::new();
        for ((port, column), progress) in &mut self.seen {
            progress.sent = progress.minimum(&self.ports[*port], &self.generation_of);
            known.extend(progress.sent.map(|micros| (*port, Watermark { column: *column, micros })));
        }
        known
    }

    /// A channel's watermark. Answers the port's new minimum if it has advanced.
    pub fn advance(&mut self, channel: usize, watermark: Watermark) -> Option<(usize, Watermark)> {
        let port = self.port_of[channel];
        let progress = self.seen.entry((port, watermark.column)).or_default();
        let known = progress.by_channel.entry(channel).or_insert(watermark.micros);
        // A watermark never goes back, whatever a channel says.
        *known = watermark.micros.max(*known);
        let minimum = progress.minimum(&self.ports[port], &self.generation_of)?;
        if progress.sent.is_some_and(|sent| minimum <= sent) {
            return None;
        }
        progress.sent = Some(minimum);
        Some((port, Watermark { column: watermark.column, micros: minimum }))
    }

    /// The watermarks that a channel has sent: column, microseconds.
    pub fn reached(&self, channel: usize) -> Vec<(usize, i64)> {
        let columns = self.columns(self.port_of[channel]);
        columns.filter_map(|(column, progress)| Some((column, *progress.by_channel.get(&channel)?))).collect()
    }

    /// Whether a channel counts for some column, even if nothing will come on it any more.
    pub fn counts(&self, channel: usize) -> bool {
        let (port, generation) = (self.port_of[channel], self.generation_of[channel]);
        self.columns(port).any(|(_, progress)| progress.deciding(&self.ports[port]).is_none_or(|deciding| deciding <= generation))
    }

    /// What is known of the columns of a port.
    fn columns(&self, port: usize) -> impl Iterator<Item = (usize, &Progress)> {
        self.seen.range((port, 0)..(port + 1, 0)).map(|((_, column), progress)| (*column, progress))
    }
}

impl Progress {
    /// The newest generation of which all channels are known.
    fn deciding(&self, port: &BTreeMap<u32, Vec<usize>>) -> Option<u32> {
        let complete = |channels: &[usize]| channels.iter().all(|channel| self.by_channel.contains_key(channel));
        port.iter().rev().find(|(_, channels)| complete(channels)).map(|(generation, _)| *generation)
    }

    fn minimum(&self, port: &BTreeMap<u32, Vec<usize>>, generation_of: &[u32]) -> Option<i64> {
        let deciding = self.deciding(port)?;
        self.by_channel.iter().filter(|(channel, _)| generation_of[**channel] >= deciding).map(|(_, micros)| *micros).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Watermark {
        Watermark { column: 2, micros }
    }

    #[test]
    fn takes_the_minimum_over_channels_of_a_port() {
        let mut minimum = WatermarkMinimum::new([0, 0, 1].map(|port| (port, 0)));
        assert_eq!(minimum.advance(0, at(10)), None, "channel 1 has said nothing");
        assert_eq!(minimum.advance(2, at(5)), Some((1, at(5))), "port 1 has one channel");
        assert_eq!(minimum.advance(1, at(7)), Some((0, at(7))));
        assert_eq!(minimum.advance(0, at(11)), None);
        assert_eq!(minimum.advance(1, at(3)), None, "never back");
        assert_eq!(minimum.advance(1, at(20)), Some((0, at(11))));
        assert_eq!((minimum.reached(1), minimum.reached(2)), (vec![(2, 20)], vec![(2, 5)]));
    }

    #[test]
    fn restored_channels_stand_in_for_those_that_follow() {
        let mut minimum = WatermarkMinimum::new([1, 1, 0, 0].map(|generation| (0, generation)));
        minimum.restore(2, at(10));
        assert_eq!(minimum.restored(), [], "the other restored channel may be further back");
        minimum.restore(3, at(8));
        assert_eq!(minimum.restored(), [(0, at(8))]);
        assert_eq!(minimum.advance(2, at(20)), None);
        assert_eq!(minimum.advance(0, at(9)), None);
        assert!(minimum.counts(2) && minimum.counts(1));
        assert_eq!(minimum.advance(3, at(15)), Some((0, at(9))), "a channel that has begun counts as well");
        assert_eq!(minimum.advance(1, at(12)), None);
        assert!(!minimum.counts(2));
        assert_eq!(minimum.advance(0, at(30)), Some((0, at(12))), "restored channels count no longer");
    }

    #[test]
    fn a_generation_takes_over_when_all_of_it_is_known() {
        // Channel 0 goes on; 1 and 2 were restored, and in that life had begun to follow 3, which has ended at 7.
        let mut minimum = WatermarkMinimum::new([2, 1, 1, 0].map(|generation| (0, generation)));
        minimum.restore(3, at(7));
        assert_eq!(minimum.restored(), [(0, at(7))]);
        assert_eq!(minimum.advance(1, at(8)), None, "what 2 has said is still on its way");
        assert_eq!(minimum.advance(2, at(8)), Some((0, at(8))));
        assert!(!minimum.counts(3) && minimum.counts(2));
        assert_eq!(minimum.advance(0, at(9)), Some((0, at(9))));
    }
}
