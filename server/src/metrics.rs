//! What Prometheus scrapes, in its text form. Everything is read from where it is counted when it is asked for; nothing is counted twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_engine::engine::Engine;
use millpond_engine::job::status::JobStatus;
use millpond_storage::memory::MemoryBudget;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder, TextEncoder};

use crate::pgwire::WireCounters;

/// Where the metrics of one server come from.
pub(crate) struct Metrics {
    wire: Arc<WireCounters>,
    engine: Arc<Engine>,
    memory: MemoryBudget,
}

/// The value of a metric, with its labels.
type Sample = (Vec<(&'static str, String)>, f64);

impl Metrics {
    /// Metrics over the counters of the parts.
    pub(crate) fn new(wire: Arc<WireCounters>, engine: Arc<Engine>, memory: MemoryBudget) -> Self {
        Self { wire, engine, memory }
    }

    /// All of them, as text.
    ///
    /// # Errors
    /// A bug: a metric without a name.
    pub(crate) fn text(&self) -> Result<String, prometheus::Error> {
        let jobs = self.engine.jobs();
        let mut families = self.process();
        families.extend(self.epochs());
        families.extend(job_families(&jobs));
        families.extend(self.checkpoints(&jobs));
        families.extend(self.exchanges(&jobs));
        families.extend(self.sources());
        families.retain(|family| !family.get_metric().is_empty());
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    fn process(&self) -> Vec<MetricFamily> {
        let sessions = self.wire.sessions.load(Ordering::Relaxed) as f64;
        let connections = self.wire.connections.load(Ordering::Relaxed) as f64;
        let refused = self.wire.refused.load(Ordering::Relaxed) as f64;
        vec![
            gauge("sessions", "Sessions that are connected now", one(sessions)),
            counter("connections_total", "Connections accepted since the start", one(connections)),
            counter("connections_refused_total", "Connections refused, or failed before their session began", one(refused)),
            gauge("memory_used_bytes", "Bytes taken of the memory budget", one(self.memory.used() as f64)),
            gauge("memory_limit_bytes", "The memory budget", one(self.memory.limit() as f64)),
        ]
    }

    fn epochs(&self) -> Vec<MetricFamily> {
        let coordinator = self.engine.coordinator();
        let (closed, log) = (coordinator.closed(), coordinator.log());
        let (late, bad) = self.engine.side_counts();
        vec![
            gauge("epoch", "The newest closed epoch", one(closed.epoch.0 as f64)),
            gauge("epoch_time_seconds", "The time of the newest closed epoch, since 1970", one(closed.time_us as f64 / 1e6)),
            gauge("epoch_log_bytes", "Bytes of the epoch log", one(log.bytes() as f64)),
            gauge("epoch_log_full", "1 while the disk of the epoch log is full", one(f64::from(u8::from(log.is_full())))),
            counter("epoch_log_failures_total", "Commits of the epoch log that have failed since the start", one(log.failures() as f64)),
            counter("late_rows_total", "Rows that came after the watermark and were put aside", one(late as f64)),
            counter("bad_rows_total", "Rows that could not be read or computed and were put aside", one(bad as f64)),
        ]
    }

    /// The newest checkpoint of each job, and how many have failed.
    fn checkpoints(&self, jobs: &[JobStatus]) -> Vec<MetricFamily> {
        let mut newest = BTreeMap::new();
        let mut failed: BTreeMap<u64, u64> = BTreeMap::new();
        for status in self.engine.checkpoints() {
            if status.error.is_some() {
                *failed.entry(status.job).or_default() += 1;
            } else {
                newest.insert(status.job, status);
            }
        }
        let known = || jobs.iter().filter_map(|job| Some((labels(job), newest.get(&job.id)?)));
        let failures = jobs.iter().map(|job| (labels(job), failed.get(&job.id).copied().unwrap_or_default() as f64)).collect();
        vec![
            gauge(
                "checkpoint_epoch",
                "Epoch of a job's newest checkpoint",
                known().map(|(labels, status)| (labels, status.epoch.0 as f64)).collect(),
            ),
            gauge(
                "checkpoint_duration_seconds",
                "From the barrier to the manifest of a job's newest checkpoint",
                known().map(|(labels, status)| (labels, status.duration_us as f64 / 1e6)).collect(),
            ),
            gauge(
                "checkpoint_log_bytes",
                "Bytes of state changelog that a job's newest checkpoint has uploaded",
                known().map(|(labels, status)| (labels, status.log_bytes as f64)).collect(),
            ),
            gauge(
                "checkpoint_materialization_bytes",
                "Bytes of materialization that a job's newest checkpoint has uploaded",
                known().map(|(labels, status)| (labels, status.materialized_bytes as f64)).collect(),
            ),
            gauge(
                "checkpoint_in_flight_bytes",
                "Bytes of messages that a job's newest checkpoint has overtaken; 0 if it was aligned",
                known().map(|(labels, status)| (labels, status.in_flight_bytes.unwrap_or(0) as f64)).collect(),
            ),
            gauge(
                "checkpoint_stored_bytes",
                "Bytes of all objects that a job's newest checkpoint needs",
                known().map(|(labels, status)| (labels, status.stored_bytes as f64)).collect(),
            ),
            gauge(
                "checkpoint_replay_bytes",
                "Bytes of state changelog that a restart from a job's newest checkpoint would replay",
                known().map(|(labels, status)| (labels, status.replay_bytes as f64)).collect(),
            ),
            gauge("checkpoints_failed", "Failed ones among the checkpoints that are remembered", failures),
        ]
    }

    /// What the channels of each job hold and may hold.
    fn exchanges(&self, jobs: &[JobStatus]) -> Vec<MetricFamily> {
        let mut sums: BTreeMap<u64, [usize; 4]> = BTreeMap::new();
        for edge in self.engine.exchanges() {
            let (channel, bounds) = (edge.channel, edge.channel.bounds);
            let more = [channel.buffered_rows, channel.buffered_bytes, bounds.rows, usize::from(bounds.is_debloated())];
            let sum = sums.entry(edge.job).or_default();
            sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
        let each = |value: usize| jobs.iter().filter_map(|job| Some((labels(job), sums.get(&job.id)?[value] as f64))).collect();
        vec![
            gauge("exchange_buffered_rows", "Rows in the channels of a job", each(0)),
            gauge("exchange_buffered_bytes", "Bytes in the channels of a job", each(1)),
            gauge("exchange_capacity_rows", "Rows that the channels of a job may hold", each(2)),
            gauge(
                "exchange_debloated_channels",
                "Channels of a job that may hold less than they can, for their consumers are slow",
                each(3),
            ),
        ]
    }

    fn sources(&self) -> Vec<MetricFamily> {
        let coordinator = self.engine.coordinator();
        let closed = coordinator.closed().epoch;
        let sources = coordinator.all_sources();
        let labels = |id: u64, name: &str| vec![("source", name.to_string()), ("id", id.to_string())];
        let rows = sources.iter().map(|source| (labels(source.id, &source.name), source.rows() as f64)).collect();
        let (mut splits, mut idle, mut watermarks) = (Vec::new(), Vec::new(), Vec::new());
        for source in &sources {
            let status = source.status();
            splits.push((labels(source.id, &source.name), status.len() as f64));
            let count = status.iter().filter(|(_, bound)| bound.is_some_and(|bound| bound.idle)).count();
            idle.push((labels(source.id, &source.name), count as f64));
            if let Some(micros) = source.watermark_at(closed).filter(|micros| !matches!(*micros, i64::MIN | i64::MAX)) {
                watermarks.push((labels(source.id, &source.name), micros as f64 / 1e6));
            }
        }
        vec![
            counter("source_rows_total", "Rows that jobs have read from a source since the start", rows),
            gauge("source_splits", "Splits of a source", splits),
            gauge("source_splits_idle", "Splits of a source that do not hold its watermark back", idle),
            gauge("source_watermark_seconds", "The watermark of a source, since 1970", watermarks),
        ]
    }
}

/// Names are unique in their schema only.
fn labels(job: &JobStatus) -> Vec<(&'static str, String)> {
    vec![("job", job.name.clone()), ("id", job.id.to_string())]
}

fn job_families(jobs: &[JobStatus]) -> Vec<MetricFamily> {
    let each = |value: fn(&JobStatus) -> f64| jobs.iter().map(|job| (labels(job), value(job))).collect();
    let state = |job: &JobStatus| {
        let mut labels = labels(job);
        labels.push(("state", job.state.as_str().to_string()));
        (labels, 1.0)
    };
    // A job that has sealed nothing yet has no lag.
    let lag = |job: &JobStatus| Some((labels(job), job.lag_ms? as f64 / 1e3));
    vec![
        gauge("job_state", "1 for the state that a job is in", jobs.iter().map(state).collect()),
        gauge("job_epoch", "Newest epoch that a job has sealed", each(|job| job.epoch.0 as f64)),
        gauge("job_lag_seconds", "How far a job's sealed epoch is behind the newest closed one", jobs.iter().filter_map(lag).collect()),
        counter("job_rows_total", "Rows that a job has taken in since the start", each(|job| job.rows as f64)),
        gauge("job_state_bytes", "Bytes of a job's operator state", each(|job| job.state_bytes as f64)),
        counter("job_restarts_total", "Restarts of a job after failures", each(|job| job.restarts as f64)),
        gauge("job_backfill_rows", "Rows that a job's backfills have read", each(|job| job.backfill.0 as f64)),
        gauge("job_backfill_rows_expected", "Rows that a job's backfills expect to read", each(|job| job.backfill.1 as f64)),
    ]
}

fn one(value: f64) -> Vec<Sample> {
    vec![(Vec::new(), value)]
}

fn gauge(name: &str, help: &str, samples: Vec<Sample>) -> MetricFamily {
    family(name, help, MetricType::GAUGE, samples, |metric, value| {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        metric.set_gauge(gauge);
    })
}

fn counter(name: &str, help: &str, samples: Vec<Sample>) -> MetricFamily {
    family(name, help, MetricType::COUNTER, samples, |metric, value| {
        let mut counter = Counter::default();
        counter.set_value(value);
        metric.set_counter(counter);
    })
}

fn family(name: &str, help: &str, kind: MetricType, samples: Vec<Sample>, set: impl Fn(&mut Metric, f64)) -> MetricFamily {
    let pair = |(name, value): (&str, String)| {
        let mut pair = LabelPair::default();
        pair.set_name(name.to_string());
        pair.set_value(value);
        pair
    };
    let metric = |(labels, value): Sample| {
        let mut metric = Metric::from_label(labels.into_iter().map(pair).collect());
        set(&mut metric, value);
        metric
    };
    let mut family = MetricFamily::default();
    family.set_name(format!("millpond_{name}"));
    family.set_help(help.to_string());
    family.set_field_type(kind);
    family.set_metric(samples.into_iter().map(metric).collect());
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_in_text_form() {
        let samples = vec![(vec![("job", "a \"b\"".to_string())], 1.5)];
        let mut text = Vec::new();
        let families = [gauge("x", "What it is", samples), counter("y_total", "Another", one(3.0))];
        TextEncoder::new().encode(&families, &mut text).expect("text");
        let want = "# HELP millpond_x What it is\n# TYPE millpond_x gauge\nmillpond_x{job=\"a \\\"b\\\"\"} 1.5\n\
                    # HELP millpond_y_total Another\n# TYPE millpond_y_total counter\nmillpond_y_total 3\n";
        assert_eq!(String::from_utf8(text).expect("text"), want);
    }
}
