//! Minimum of event time over the channels of each input port: pure.

use std::collections::BTreeMap;

use crate::message::Watermark;

/// Watermarks of one subtask's ports. A port's watermark of a column is the minimum over its channels, known once every channel has sent one.
#[derive(Debug)]
pub struct WatermarkMinimum {
    port_of: Vec<usize>,
    channels_of: Vec<usize>,
    seen: BTreeMap<(usize, usize), PortProgress>,
}

#[derive(Debug, Default)]
struct PortProgress {
    by_channel: BTreeMap<usize, i64>,
    sent: Option<i64>,
}

impl WatermarkMinimum {
    /// `port_of[channel]` is the port a channel feeds.
    pub fn new(port_of: Vec<usize>) -> Self {
        let ports = port_of.iter().max().map_or(0, |p| p + 1);
        let mut channels_of = vec![0; ports];
        for port in &port_of {
            channels_of[*port] += 1;
        }
        Self { port_of, channels_of, seen: BTreeMap::new() }
    }

    /// A channel's watermark. Answers the port's new minimum if it has advanced.
    pub fn advance(&mut self, channel: usize, watermark: Watermark) -> Option<(usize, Watermark)> {
        let port = self.port_of[channel];
        let progress = self.seen.entry((port, watermark.column)).or_default();
        let known = progress.by_channel.entry(channel).or_insert(watermark.micros);
        // A watermark never goes back, whatever a channel says.
        *known = watermark.micros.max(*known);
        if progress.by_channel.len() < self.channels_of[port] {
            return None;
        }
        let minimum = progress.by_channel.values().copied().min()?;
        if progress.sent.is_some_and(|sent| minimum <= sent) {
            return None;
        }
        progress.sent = Some(minimum);
        Some((port, Watermark { column: watermark.column, micros: minimum }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_minimum_over_channels_of_a_port() {
        let mut minimum = WatermarkMinimum::new(vec![0, 0, 1]);
        let at = |micros| Watermark { column: 2, micros };
        assert_eq!(minimum.advance(0, at(10)), None, "channel 1 has said nothing");
        assert_eq!(minimum.advance(2, at(5)), Some((1, at(5))), "port 1 has one channel");
        assert_eq!(minimum.advance(1, at(7)), Some((0, at(7))));
        assert_eq!(minimum.advance(0, at(11)), None);
        assert_eq!(minimum.advance(1, at(3)), None, "never back");
        assert_eq!(minimum.advance(1, at(20)), Some((0, at(11))));
    }
}
