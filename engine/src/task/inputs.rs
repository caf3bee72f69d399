//! The protocol of a subtask's input channels: what is aligned, what event time has come to, and what of it goes into a checkpoint that does not
//! wait. Pure.

use std::ops::Range;

use millpond_storage::{
    checkpoint::{Segment, SegmentMessage},
    epoch::Epoch,
    signed_batch::SignedBatch,
};

use super::{
    align::Aligner,
    subtask::{ChannelPlan, Feed},
    watermark::WatermarkMinimum,
};
use crate::{
    exchange::inbox::ChannelId,
    message::{Barrier, Message, Watermark},
};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Inputs {
    pub(super) channels: Vec<ChannelPlan>,
    pub(super) aligner: Aligner,
    minimum: WatermarkMinimum,
    /// Flat number of a port -> node and port.
    ports: Vec<(usize, usize)>,
}

impl Inputs {
    /// Inputs of a subtask that has closed every epoch up to `closed`. `in_flight` are barriers that channels may have delivered in an earlier life.
    pub(super) fn new(channels: Vec<ChannelPlan>, closed: Epoch, in_flight: &[Barrier]) -> Self {
        let places: Vec<(usize, usize)> = channels.iter().map(|channel| (channel.node, channel.port)).collect();
        let (ports, port_of) = number_ports(&places);
        let aligner = Aligner::new(closed, channels.iter().map(|channel| channel.passed).collect(), in_flight);
        let mut minimum = WatermarkMinimum::new(port_of.into_iter().zip(channels.iter().map(|channel| channel.generation)));
        for (channel, plan) in channels.iter().enumerate() {
            plan.reached.iter().for_each(|watermark| minimum.restore(channel, *watermark));
        }
        Self { channels, aligner, minimum, ports }
    }

    /// The minima that are known from an earlier life: node and port, and the watermark.
    pub(super) fn restored(&mut self) -> Vec<((usize, usize), Watermark)> {
        self.minimum.restored().into_iter().map(|(port, watermark)| (self.ports[port], watermark)).collect()
    }

    /// A channel's watermark. Answers node and port whose minimum it has advanced, and the new minimum.
    pub(super) fn advance(&mut self, channel: ChannelId, watermark: Watermark) -> Option<((usize, usize), Watermark)> {
        let (port, watermark) = self.minimum.advance(channel, watermark)?;
        Some((self.ports[port], watermark))
    }

    /// Channels on which a checkpoint's barrier must have come before the subtask's state may be taken.
    pub(super) fn awaited(&self) -> impl Iterator<Item = ChannelId> {
        let exchanges = self.channels.iter().enumerate().filter(|(_, channel)| matches!(channel.feed, Feed::Exchange(_)));
        exchanges.map(|(channel, _)| channel).filter(|channel| !self.aligner.has_ended(*channel))
    }

    /// What the channels of exchanges hold that the subtask, which owns `key_groups`, has not taken. `overtaken` gives the messages of a channel
    /// below the barrier.
    pub(super) fn segments(&self, key_groups: &Range<u16>, overtaken: impl Fn(ChannelId) -> Vec<Message>) -> Vec<Segment> {
        let mut segments = Vec::new();
        for (channel, plan) in self.channels.iter().enumerate() {
            let Feed::Exchange(exchange) = plan.feed else { continue };
            // What is drained of an earlier life counts while its watermark stands in for others.
            if self.aligner.has_ended(channel) && !self.minimum.counts(channel) {
                continue;
            }
            let watermarks = self.minimum.reached(channel).into_iter().map(|(column, micros)| (column as u32, micros)).collect();
            segments.push(Segment {
                exchange: exchange as u32,
                key_groups: key_groups.clone(),
                passed: self.aligner.passed(channel),
                generation: plan.generation,
                watermarks,
                messages: overtaken(channel).into_iter().map(stored).collect(),
            });
        }
        segments
    }
}

fn stored(message: Message) -> SegmentMessage {
    match message {
        Message::Chunk(chunk) => {
            let signs = chunk.ops().map(|ops| ops.iter().map(|op| op.sign()).collect());
            SegmentMessage::Rows(SignedBatch { batch: chunk.batch().clone(), signs })
        }
        Message::Watermark(watermark) => SegmentMessage::Watermark { column: watermark.column as u32, micros: watermark.micros },
        Message::Barrier(barrier) => SegmentMessage::Barrier { epoch: barrier.epoch, time_us: barrier.time_us },
    }
}

/// Distinct (node, port) pairs in order, and for each channel the position of its pair.
fn number_ports(channels: &[(usize, usize)]) -> (Vec<(usize, usize)>, Vec<usize>) {
    let mut ports: Vec<(usize, usize)> = channels.to_vec();
    ports.sort_unstable();
    ports.dedup();
    let port_of = channels.iter().map(|channel| ports.iter().position(|port| port == channel).expect("taken from the same list")).collect();
    (ports, port_of)
}
