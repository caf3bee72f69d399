//! One life of the simulated job, between two deaths.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{AsArray, Int64Array},
    datatypes::{DataType, Field, Int64Type, Schema, SchemaRef},
    record_batch::RecordBatch,
};
use millpond_storage::{checkpoint::InFlight, epoch::Epoch, key_group::key_group_range, memory::MemoryBudget};
use rand::{Rng, rngs::StdRng};

use super::{
    FRAGMENTS, OPERATOR, Open, Positions, ROOT, Saved, Sealed, Seen, Sums,
    oracle::{Input, InputRow, Net},
};
use crate::{
    chunk::{Chunk, Op},
    exchange::{
        channel::{Channel, Taken},
        inbox::Received,
        router::KeySplitter,
    },
    graph::{Distribution, Exchange, ExchangeMode},
    job::collector::{Collector, Materialize},
    message::{Barrier, BarrierKind, Message, Watermark},
    operator::{Operator, Output},
    scan::place::ScanPlaces,
    task::{
        determinants::{Determinants, Mark},
        inputs::Inputs,
        restart::CutNote,
        revival::Sending,
        sent::SentInStep,
        subtask::{ChannelPlan, Feed},
    },
};

/// Rows a channel may hold before its producer takes no more input.
const ROOM: usize = 8;
const BARRIERS_IN_FLIGHT: usize = 4;
/// What a simulated failure says.
const FAILURE: &str = "a simulated failure";
/// More steps than any run takes that does not hang.
const STEPS: usize = 200_000;

struct Part {
    fragment: usize,
    is_cut: bool,
    closed: Epoch,
    flight: InFlight,
    sums: Sums,
    open: Open,
    positions: Positions,
}

enum Body {
    Scan { source: usize, positions: Positions, orders: Vec<Barrier> },
    Operator { sums: Sums, open: Open, watermarks: [Option<i64>; 2], forwarded: Option<i64> },
    Root(Materialize),
}

struct Task {
    fragment: usize,
    index: usize,
    inputs: Inputs,
    channels: Vec<Channel>,
    next: usize,
    closed: Epoch,
    checkpointed: Epoch,
    body: Body,
    local: Local,
}

/// What of a task outlives its failure.
pub(super) struct Local {
    pub(super) determinants: Determinants,
    pub(super) sent: SentInStep,
    pub(super) sending: Sending,
    sent_barrier: Epoch,
    reported: Epoch,
    /// It has failed, and is restarted at this step.
    down_until: Option<usize>,
    /// It fails when it has sent so many more messages.
    fuse: Option<u32>,
}

impl Local {
    fn new(budget: &MemoryBudget, bytes: usize) -> Self {
        Self {
            determinants: Determinants::new(bytes, budget.handle("a simulated task")),
            sent: SentInStep::default(),
            sending: Sending::Live,
            sent_barrier: Epoch(0),
            reported: Epoch(0),
            down_until: None,
            fuse: None,
        }
    }
}

pub(super) struct Life<'a> {
    seed: u64,
    input: &'a Input,
    width: usize,
    tasks: Vec<Task>,
    collector: Arc<Collector>,
    splitters: Vec<KeySplitter>,
    /// Barriers in flight, and how many roots have still to close each.
    in_flight: Vec<(Barrier, usize)>,
    injected: Epoch,
    /// The checkpoint that is being taken, with its parts.
    taking: Option<(Epoch, Vec<Part>)>,
    /// The checkpoint that waits no longer.
    switched: Epoch,
    /// For so many steps, on average, a checkpoint waits.
    patience: u32,
    committed: Vec<Saved>,
    /// The newest complete checkpoint.
    completed: Epoch,
    /// A task was put back after it had given its part of the checkpoint that is being taken.
    is_given_up: bool,
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, false), Field::new("v", DataType::Int64, false)]))
}

fn exchange(id: usize) -> Exchange {
    let (from, to, columns) = [(0, OPERATOR, vec![0]), (1, OPERATOR, vec![0]), (OPERATOR, ROOT, vec![1])][id].clone();
    Exchange { id, from, to, distribution: Distribution::Hash(columns), schema: schema(), mode: ExchangeMode::Pipelined }
}

fn chunk(rows: &[(InputRow, i64)]) -> Chunk {
    let keys = Int64Array::from_iter_values(rows.iter().map(|((key, _), _)| *key));
    let values = Int64Array::from_iter_values(rows.iter().map(|((_, value), _)| *value));
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(keys), Arc::new(values)]).expect("two columns");
    Chunk::new(batch, rows.iter().map(|(_, sign)| Op::from_sign(*sign as i8)).collect())
}

fn rows(batch: &RecordBatch) -> Vec<InputRow> {
    let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values().to_vec();
    column(0).into_iter().zip(column(1)).collect()
}

impl<'a> Life<'a> {
    pub(super) fn start(seed: u64, input: &'a Input, saved: &Saved, sealed: &mut Sealed, width: usize) -> Self {
        let restart = saved.restart();
        let collector = Arc::new(Collector::restored(restart.unsealed.clone()));
        let mut splitters: Vec<KeySplitter> = (0..3)
            .map(|id| match exchange(id).distribution {
                Distribution::Hash(columns) => KeySplitter::new(&columns, &schema()).expect("numbers are keys"),
                _ => unreachable!("all edges are hashed"),
            })
            .collect();
        // With some seeds little is kept.
        let (budget, kept_bytes) = (MemoryBudget::new(64 << 20), if seed.is_multiple_of(5) { 4 << 10 } else { 16 << 20 });
        let mut tasks = Vec::new();
        for fragment in 0..FRAGMENTS {
            for index in 0..width {
                let closed = restart.closed(fragment);
                let (mut plans, mut channels, mut rests) = (Vec::new(), Vec::new(), Vec::new());
                for edge in (0..3).map(exchange).filter(|edge| edge.to == fragment) {
                    let port = if fragment == OPERATOR { edge.id } else { 0 };
                    let feed = Feed::Exchange(edge.id);
                    let plan = |passed, reached, generation| ChannelPlan { node: 0, port, feed, passed, reached, generation };
                    for _ in 0..width {
                        plans.push(plan(restart.closed(edge.from), Vec::new(), restart.generation()));
                        channels.push(Channel::default());
                    }
                    let restored = restart.channels(&edge, index, width).expect("rows can be split");
                    rests.extend(restored.into_iter().map(|rest| (plan(rest.passed, rest.reached, rest.generation), rest.channel)));
                }
                for (plan, channel) in rests {
                    plans.push(plan);
                    channels.push(channel);
                }
                let body = match fragment {
                    OPERATOR => operator_body(saved, index, width, &mut splitters[0]),
                    ROOT => Body::Root(Materialize::new(collector.clone(), index, Some(0))),
                    source => scan_body(input, saved, source, index, width),
                };
                let mut inputs = Inputs::new(plans, closed, &restart.barriers);
                for (channel, _) in channels.iter().enumerate().filter(|(_, channel)| channel.is_drained()) {
                    inputs.aligner.on_drained(channel);
                }
                let local = Local::new(&budget, kept_bytes);
                tasks.push(Task { fragment, index, inputs, channels, next: 0, closed, checkpointed: Epoch(0), body, local });
            }
        }
        let in_flight = restart.barriers.iter().map(|barrier| (*barrier, width)).collect();
        let mut life = Self {
            seed,
            input,
            width,
            tasks,
            collector,
            splitters,
            in_flight,
            injected: saved.epoch,
            taking: None,
            switched: Epoch(0),
            patience: [30, 300, 3000][(seed % 3) as usize],
            committed: Vec::new(),
            completed: saved.epoch,
            is_given_up: false,
        };
        restart.barriers.iter().for_each(|barrier| life.order(*barrier));
        for task in 0..life.tasks.len() {
            life.mark(task, saved.epoch, true);
            for ((_, port), watermark) in life.tasks[task].inputs.restored() {
                life.on_watermark(task, port, watermark);
            }
            // Nothing may be withheld by a channel that is gone already.
            life.close_all(task, sealed);
        }
        life
    }

    /// Tells the scans that have not closed its epoch of a barrier.
    fn order(&mut self, barrier: Barrier) {
        for task in &mut self.tasks {
            if let Body::Scan { orders, .. } = &mut task.body
                && task.closed < barrier.epoch
            {
                orders.push(barrier);
            }
        }
    }

    /// Takes steps until everything is sealed (then it answers true) or the job dies.
    pub(super) fn run(&mut self, rng: &mut StdRng, steps: usize, sealed: &mut Sealed, saved: &mut Saved, seen: &mut Seen) -> bool {
        let mut stalled_until = vec![0; self.tasks.len()];
        for step in 0..steps {
            assert!(step < STEPS, "seed {}: hangs with barriers {:?}", self.seed, self.in_flight);
            self.drive(rng);
            let task = rng.random_range(0..self.tasks.len());
            if rng.random_ratio(1, 400) {
                stalled_until[task] = step + rng.random_range(0..600);
            }
            match self.tasks[task].local.down_until {
                Some(until) if until > step => {}
                Some(_) => self.revive(task, saved, sealed),
                None if stalled_until[task] <= step => {
                    self.step(task, rng, sealed);
                    if let Some(until) = &mut self.tasks[task].local.down_until {
                        *until += step;
                        seen.failures += 1;
                    }
                }
                None => {}
            }
            for checkpoint in self.committed.drain(..) {
                match &checkpoint.cut {
                    None => seen.aligned += 1,
                    Some((_, flights)) => {
                        seen.unaligned += 1;
                        seen.in_flight_rows += flights.iter().map(InFlight::rows).sum::<u64>();
                    }
                }
                self.completed = checkpoint.epoch;
                *saved = checkpoint;
                sealed.durable = sealed.upper;
            }
            if self.injected == self.input.last_barrier() && self.in_flight.is_empty() {
                return true;
            }
        }
        false
    }

    /// The driver: injects barriers, asks for checkpoints, switches them.
    fn drive(&mut self, rng: &mut StdRng) {
        if let Some((checkpoint, _)) = &self.taking
            && rng.random_ratio(1, self.patience)
        {
            self.switched = *checkpoint;
        }
        let next = self.input.barriers.iter().copied().find(|barrier| *barrier > self.injected);
        let checkpoints = self.taking.is_none() && rng.random_ratio(1, 3);
        let bound = BARRIERS_IN_FLIGHT + if checkpoints { 3 } else { 0 };
        if let Some(epoch) = next
            && self.in_flight.len() < bound
            && rng.random_ratio(1, 20)
        {
            let kind = if checkpoints { BarrierKind::Checkpoint } else { BarrierKind::Epoch };
            let barrier = Barrier { epoch, time_us: 0, kind };
            self.injected = epoch;
            self.in_flight.push((barrier, self.width));
            self.order(barrier);
            if checkpoints {
                self.taking = Some((epoch, Vec::new()));
            }
        }
    }

    fn step(&mut self, task: usize, rng: &mut StdRng, sealed: &mut Sealed) {
        if self.cut_if_due(task) || !self.has_room(task) {
            return;
        }
        match self.tasks[task].body {
            Body::Scan { .. } => self.step_scan(task, rng),
            Body::Operator { .. } | Body::Root(_) => self.step_inner(task, rng, sealed),
        }
    }

    fn edge_of(fragment: usize) -> Option<usize> {
        (0..3).find(|edge| exchange(*edge).from == fragment)
    }

    /// Consumers of a task's output, with the channel it feeds.
    fn consumers(&self, task: usize) -> Vec<(usize, usize)> {
        let Task { fragment, index, .. } = self.tasks[task];
        let Some(edge) = Self::edge_of(fragment) else { return Vec::new() };
        let to = exchange(edge).to;
        let channel = if to == OPERATOR { edge * self.width + index } else { index };
        (0..self.width).map(|consumer| (to * self.width + consumer, channel)).collect()
    }

    fn has_room(&self, task: usize) -> bool {
        self.consumers(task).into_iter().all(|(consumer, channel)| self.tasks[consumer].channels[channel].rows() < ROOM)
    }

    /// Sends a message, as far as it was not sent before.
    fn send(&mut self, task: usize, message: Message) {
        let local = &mut self.tasks[task].local;
        if let Some(fuse) = &mut local.fuse {
            if *fuse == 0 {
                local.fuse = None;
                std::panic::resume_unwind(Box::new(FAILURE));
            }
            *fuse -= 1;
        }
        match (message, &mut local.sending) {
            (Message::Chunk(_) | Message::Watermark(_), Sending::Muted) => {}
            (Message::Chunk(chunk), sending) => {
                let chunk = match sending {
                    Sending::Filtered(filter) => filter.only_new(chunk).expect("numbers have an order"),
                    Sending::Live | Sending::Muted => Some(chunk),
                };
                let Some(chunk) = chunk else { return };
                self.deliver(task, Message::Chunk(chunk.clone()));
                self.tasks[task].local.sent.sent(chunk);
            }
            (Message::Barrier(barrier), _) if barrier.epoch <= local.sent_barrier => {}
            (Message::Barrier(barrier), _) => {
                local.sent_barrier = barrier.epoch;
                self.deliver(task, Message::Barrier(barrier));
            }
            (watermark @ Message::Watermark(_), _) => self.deliver(task, watermark),
        }
    }

    fn deliver(&mut self, task: usize, message: Message) {
        let consumers = self.consumers(task);
        let parts: Vec<Option<Message>> = match &message {
            Message::Chunk(chunk) => {
                let Some(edge) = Self::edge_of(self.tasks[task].fragment) else { return };
                let parts = self.splitters[edge].split(chunk, self.width).expect("rows can be split");
                parts.into_iter().map(|part| part.map(Message::Chunk)).collect()
            }
            Message::Watermark(_) | Message::Barrier(_) => vec![Some(message.clone()); self.width],
        };
        for ((consumer, channel), part) in consumers.into_iter().zip(parts) {
            let Some(part) = part else { continue };
            let channel = &mut self.tasks[consumer].channels[channel];
            let checkpoint = match &part {
                Message::Barrier(barrier) if barrier.kind.is_checkpoint() => Some(barrier.epoch),
                Message::Barrier(_) | Message::Chunk(_) | Message::Watermark(_) => None,
            };
            channel.push(part, None);
            if let Some(checkpoint) = checkpoint {
                channel.overtake(checkpoint);
            }
        }
    }

    fn step_scan(&mut self, task: usize, rng: &mut StdRng) {
        let input = self.input;
        let Body::Scan { source, positions, orders } = &mut self.tasks[task].body else { return };
        let Some(barrier) = orders.first().copied() else { return };
        let source = *source;
        let behind = positions.iter_mut().find(|((_, split), at)| **at < input.bound(source, *split, barrier.epoch));
        if let Some(((_, split), at)) = behind {
            let end = input.bound(source, *split, barrier.epoch).min(*at + rng.random_range(1..5));
            let rows: Vec<_> = input.rows(source, *split, *at, end).into_iter().map(|row| (row, 1)).collect();
            *at = end;
            return self.send(task, Message::Chunk(chunk(&rows)));
        }
        orders.remove(0);
        self.send(task, Message::Watermark(Watermark { column: 0, micros: Input::watermark(barrier.epoch) }));
        self.finish_barrier(task, barrier);
    }

    /// The barrier leaves, and the task's part is given if it was not before.
    fn finish_barrier(&mut self, task: usize, barrier: Barrier) {
        self.tasks[task].closed = barrier.epoch;
        let wanted = barrier.kind.is_checkpoint() && barrier.epoch > self.tasks[task].checkpointed;
        let kind = if wanted { BarrierKind::Checkpoint } else { BarrierKind::Epoch };
        self.send(task, Message::Barrier(Barrier { kind, ..barrier }));
        if wanted {
            self.give_part(task, barrier.epoch, false);
        }
    }

    fn cut_if_due(&mut self, task: usize) -> bool {
        let checkpoint = self.switched;
        let it = &self.tasks[task];
        if checkpoint <= it.checkpointed || it.closed >= checkpoint {
            return false;
        }
        if !it.inputs.awaited().all(|channel| it.channels[channel].has_barrier(checkpoint)) {
            return false;
        }
        self.give_part(task, checkpoint, true);
        for (consumer, channel) in self.consumers(task) {
            self.tasks[consumer].channels[channel].overtake(checkpoint);
        }
        true
    }

    fn give_part(&mut self, task: usize, checkpoint: Epoch, is_cut: bool) {
        let (width, seed) = (self.width, self.seed);
        let it = &mut self.tasks[task];
        let channels = &it.channels;
        let segments = it.inputs.segments(&key_group_range(it.index, width), |channel| channels[channel].overtaken(checkpoint));
        let mut flight = InFlight { subtask: it.index as u32, segments, unsealed: Vec::new() };
        let (mut sums, mut open, mut positions) = (Sums::new(), Open::new(), Positions::new());
        match &mut it.body {
            Body::Scan { positions: at, .. } => positions = at.clone(),
            Body::Operator { sums: kept, open: changed, .. } => {
                // What comes from an earlier life keeps the epoch it was written with.
                (sums, open) = (kept.clone(), changed.clone());
            }
            Body::Root(_) => flight.unsealed = self.collector.unsealed(it.index, it.closed),
        }
        it.channels.iter_mut().for_each(|channel| channel.pass(checkpoint));
        it.checkpointed = checkpoint;
        let part = Part { fragment: it.fragment, is_cut, closed: it.closed, flight, sums, open, positions };
        let (taking, parts) = self.taking.as_mut().unwrap_or_else(|| panic!("seed {seed}: nobody asked for a part"));
        assert_eq!(*taking, checkpoint, "seed {seed}");
        parts.push(part);
        let count = parts.len();
        self.mark(task, checkpoint, false);
        if count == FRAGMENTS * width {
            self.commit(checkpoint);
        }
    }

    fn commit(&mut self, epoch: Epoch) {
        let Some((_, parts)) = self.taking.take() else { return };
        if std::mem::take(&mut self.is_given_up) {
            return;
        }
        let is_cut = parts.iter().any(|part| part.is_cut);
        let mut saved = Saved { epoch, ..Saved::default() };
        // A checkpoint also names barriers that its roots have closed meanwhile: they are closed again.
        let barriers = self.input.barriers.iter().filter(|barrier| **barrier <= epoch);
        let injected = barriers.map(|epoch| Barrier { epoch: *epoch, time_us: 0, kind: BarrierKind::Epoch });
        let note = CutNote::new(FRAGMENTS, parts.iter().map(|part| (part.fragment, part.closed)), injected);
        let mut flights = Vec::new();
        for part in parts {
            assert!(is_cut || part.closed == epoch && part.open.is_empty(), "seed {}", self.seed);
            saved.sums.extend(part.sums);
            saved.open.extend(part.open);
            saved.positions.extend(part.positions);
            flights.push(part.flight);
        }
        saved.cut = is_cut.then_some((note, flights));
        self.committed.push(saved);
    }

    fn step_inner(&mut self, task: usize, rng: &mut StdRng, sealed: &mut Sealed) {
        let limit = rng.random_range(1..6);
        let it = &mut self.tasks[task];
        let count = it.channels.len();
        for step in 0..count {
            let channel = (it.next + step) % count;
            if it.inputs.aligner.blocked()[channel] {
                continue;
            }
            let Some(taken) = it.channels[channel].take(limit) else { continue };
            it.next = channel + 1;
            let Taken { sequence, message, positions } = taken;
            let received = Received { channel, sequence, message, positions, is_last: it.channels[channel].is_drained() };
            it.local.determinants.complete(self.completed);
            it.local.determinants.record(&received);
            it.local.sent.begin();
            if it.local.determinants.serves_since(self.completed) && rng.random_ratio(1, 60) {
                it.local.fuse = Some(rng.random_range(0..3));
            }
            let (fails_at_once, down_for) = (rng.random_ratio(1, 3), rng.random_range(0..300));
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                if self.tasks[task].local.fuse.is_some() && fails_at_once {
                    std::panic::resume_unwind(Box::new(FAILURE));
                }
                self.take(task, received, sealed);
            }));
            self.tasks[task].local.fuse = None;
            if let Err(failure) = outcome {
                match failure.downcast_ref::<&str>() {
                    Some(text) if *text == FAILURE => self.tasks[task].local.down_until = Some(down_for),
                    _ => std::panic::resume_unwind(failure),
                }
            }
            return;
        }
    }

    /// Works off a message.
    pub(super) fn take(&mut self, task: usize, received: Received, sealed: &mut Sealed) {
        let channel = received.channel;
        match received.message {
            Message::Chunk(chunk) => self.on_chunk(task, channel, chunk),
            Message::Watermark(watermark) => {
                if let Some(((_, port), watermark)) = self.tasks[task].inputs.advance(channel, watermark) {
                    self.on_watermark(task, port, watermark);
                }
            }
            Message::Barrier(barrier) => self.tasks[task].inputs.aligner.on_barrier(channel, barrier),
        }
        if received.is_last {
            self.tasks[task].inputs.aligner.on_drained(channel);
        }
        self.close_all(task, sealed);
    }

    /// The task's state has been taken.
    fn mark(&mut self, task: usize, checkpoint: Epoch, is_start: bool) {
        let it = &mut self.tasks[task];
        it.local.sent.begin();
        it.local.determinants.mark(Mark {
            checkpoint,
            at: it.local.determinants.count(),
            is_start,
            inputs: it.inputs.clone(),
            places: ScanPlaces::default(),
            applied: BTreeMap::new(),
            collected: if it.fragment == ROOT { self.collector.open(it.index) } else { Vec::new() },
            time_us: 0,
        });
    }

    /// Restarts a task that has failed, from the newest complete checkpoint.
    fn revive(&mut self, task: usize, saved: &Saved, sealed: &mut Sealed) {
        let seed = self.seed;
        let it = &mut self.tasks[task];
        it.local.down_until = None;
        let mark = it.local.determinants.place_of(saved.epoch).cloned();
        let mark = mark.unwrap_or_else(|| panic!("seed {seed}: nothing was kept since the checkpoint of {}", saved.epoch));
        it.closed = mark.inputs.aligner.closed();
        it.inputs = mark.inputs;
        if self.taking.as_ref().is_some_and(|(epoch, _)| *epoch == it.checkpointed) {
            self.is_given_up = true;
        }
        it.body = match it.fragment {
            ROOT => {
                self.collector.rewind(it.index, it.local.reported, mark.collected);
                Body::Root(Materialize::new(self.collector.clone(), it.index, Some(0)))
            }
            _ => operator_body(saved, it.index, self.width, &mut self.splitters[0]),
        };
        let (from, upto) = (mark.at, it.local.determinants.count());
        self.tasks[task].local.sending = if mark.is_start { self.sending_step(task, from, upto) } else { Sending::Muted };
        for ((_, port), watermark) in self.tasks[task].inputs.restored() {
            self.on_watermark(task, port, watermark);
        }
        if !mark.is_start {
            self.tasks[task].local.sending = self.sending_step(task, from, upto);
        }
        self.close_all(task, sealed);
        for number in from..upto {
            self.tasks[task].local.sending = self.sending_step(task, number + 1, upto);
            let received = self.tasks[task].local.determinants.get(number).cloned();
            self.take(task, received.unwrap_or_else(|| panic!("seed {seed}: message {number} is gone")), sealed);
        }
        if let Sending::Filtered(filter) = std::mem::replace(&mut self.tasks[task].local.sending, Sending::Live) {
            assert!(filter.is_used_up(), "seed {seed}: a message led to another output");
        }
    }

    fn sending_step(&self, task: usize, step: u64, last: u64) -> Sending {
        if step < last {
            return Sending::Muted;
        }
        Sending::Filtered(self.tasks[task].local.sent.filter().expect("numbers have an order"))
    }

    fn close_all(&mut self, task: usize, sealed: &mut Sealed) {
        while let Some(barrier) = self.tasks[task].inputs.aligner.close_next() {
            self.close(task, barrier, sealed);
        }
    }

    fn on_chunk(&mut self, task: usize, channel: usize, chunk: Chunk) {
        let port = self.tasks[task].inputs.channels[channel].port;
        let closed = self.tasks[task].closed;
        match &mut self.tasks[task].body {
            Body::Scan { .. } => {}
            Body::Root(root) => {
                let _ = root.on_chunk(0, chunk, &mut Output::default()).expect("a chunk");
            }
            Body::Operator { sums, open, .. } => {
                let mut passed = Vec::new();
                for (key, value) in rows(chunk.batch()) {
                    open.entry(key).or_insert((closed, sums.get(&key).copied()));
                    *sums.entry(key).or_insert(0) += value;
                    if port == 0 {
                        passed.push(((key, -1 - value), 1));
                    }
                }
                if !passed.is_empty() {
                    self.send(task, Message::Chunk(self::chunk(&passed)));
                }
            }
        }
    }

    fn on_watermark(&mut self, task: usize, port: usize, watermark: Watermark) {
        match &mut self.tasks[task].body {
            Body::Scan { .. } => {}
            Body::Root(root) => {
                let _ = root.on_watermark(0, watermark, &mut Output::default()).expect("a watermark");
            }
            Body::Operator { watermarks, forwarded, .. } => {
                watermarks[port] = Some(watermark.micros);
                if let [Some(a), Some(b)] = *watermarks
                    && forwarded.is_none_or(|forwarded| forwarded < a.min(b))
                {
                    *forwarded = Some(a.min(b));
                    self.send(task, Message::Watermark(Watermark { column: 0, micros: a.min(b) }));
                }
            }
        }
    }

    fn close(&mut self, task: usize, barrier: Barrier, sealed: &mut Sealed) {
        let mut emitted = Vec::new();
        match &mut self.tasks[task].body {
            Body::Scan { .. } => {}
            Body::Root(root) => {
                let _ = root.on_barrier(&barrier, &mut Output::default()).expect("a barrier");
            }
            Body::Operator { sums, open, .. } => {
                open.retain(|key, (closed, before)| {
                    if *closed >= barrier.epoch {
                        return true;
                    }
                    let now = sums.get(key).copied().unwrap_or_default();
                    emitted.extend(before.map(|before| ((*key, before), -1)));
                    emitted.push(((*key, now), 1));
                    false
                });
            }
        }
        if !emitted.is_empty() {
            self.send(task, Message::Chunk(chunk(&emitted)));
        }
        self.finish_barrier(task, barrier);
        if self.tasks[task].fragment == ROOT && barrier.epoch > self.tasks[task].local.reported {
            self.tasks[task].local.reported = barrier.epoch;
            self.root_closed(barrier.epoch, sealed);
        }
    }

    fn root_closed(&mut self, epoch: Epoch, sealed: &mut Sealed) {
        let seed = self.seed;
        let flight = self.in_flight.iter_mut().find(|(barrier, _)| barrier.epoch == epoch);
        let (_, left) = flight.unwrap_or_else(|| panic!("seed {seed}: epoch {epoch} is closed again"));
        *left -= 1;
        if *left > 0 {
            return;
        }
        assert_eq!(self.in_flight[0].0.epoch, epoch, "seed {seed}: epochs are sealed in order");
        self.in_flight.remove(0);
        let (batches, watermark) = (self.collector.take(epoch), self.collector.watermark(epoch, self.width));
        if epoch <= sealed.upper {
            return;
        }
        let mut net = Net::new();
        for batch in batches {
            for (row, key) in rows(&batch.batch).into_iter().enumerate() {
                *net.entry(key).or_default() += i64::from(batch.sign(row));
            }
        }
        net.retain(|_, count| *count != 0);
        assert_eq!(net, self.input.expected(epoch), "seed {seed}, epoch {epoch}, {} subtasks", self.width);
        assert_eq!(watermark, Some((0, Input::watermark(epoch))), "seed {seed}, epoch {epoch}");
        sealed.upper = epoch;
    }
}

fn scan_body(input: &Input, saved: &Saved, source: usize, index: usize, width: usize) -> Body {
    let own = (0..input.split_count(source)).filter(|split| split % width == index);
    let positions = own.map(|split| ((source, split), saved.positions.get(&(source, split)).copied().unwrap_or(0)));
    Body::Scan { source, positions: positions.collect(), orders: Vec::new() }
}

fn operator_body(saved: &Saved, index: usize, width: usize, splitter: &mut KeySplitter) -> Body {
    let mut owns = |key: i64| {
        let parts = splitter.split(&chunk(&[((key, 0), 1)]), width).expect("rows can be split");
        parts[index].is_some()
    };
    let sums: BTreeMap<i64, i64> = saved.sums.iter().filter(|(key, _)| owns(**key)).map(|(key, sum)| (*key, *sum)).collect();
    let open = saved.open.iter().filter(|(key, _)| owns(**key)).map(|(key, open)| (*key, *open)).collect();
    Body::Operator { sums, open, watermarks: [None; 2], forwarded: None }
}
