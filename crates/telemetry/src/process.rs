//! Process metrics from the operating system, read at every scrape.
#![allow(clippy::disallowed_methods, reason = "a metric states when the process started")]

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, IntGauge};
use rustix::time::{ClockId, clock_gettime};

/// Start time, resident memory and CPU time, under the names that Prometheus' own clients use.
pub(crate) struct Process {
    start_time: Gauge,
    resident_memory: IntGauge,
    /// Locked, because two concurrent scrapes must not add the same CPU time twice.
    cpu: Mutex<Counter>,
    descriptions: Vec<Desc>,
}

impl Process {
    pub fn new() -> prometheus::Result<Self> {
        let start_time = Gauge::new(
            "process_start_time_seconds",
            "Time at which the process began to serve metrics, in seconds since 1970",
        )?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        start_time.set(now.as_secs_f64());
        let resident_memory = IntGauge::new("process_resident_memory_bytes", "Resident memory")?;
        let cpu = Counter::new("process_cpu_seconds_total", "User and system CPU time spent")?;
        let descriptions = [start_time.desc(), resident_memory.desc(), cpu.desc()];
        let descriptions = descriptions.into_iter().flatten().cloned().collect();
        Ok(Self { start_time, resident_memory, cpu: Mutex::new(cpu), descriptions })
    }
}

impl Collector for Process {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        if let Some(bytes) = resident_memory_bytes() {
            self.resident_memory.set(bytes);
        }
        let cpu = self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        cpu.inc_by((cpu_seconds() - cpu.get()).max(0.0));
        [self.start_time.collect(), self.resident_memory.collect(), cpu.collect()].concat()
    }
}

/// The second field of `/proc/self/statm` is the resident set in pages.
fn resident_memory_bytes() -> Option<i64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: i64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * i64::try_from(rustix::param::page_size()).ok()?)
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Registry, TextEncoder};

    #[test]
    fn every_scrape_has_memory_and_time() {
        let registry = Registry::new();
        registry.register(Box::new(Process::new().unwrap())).unwrap();
        let text = || TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let value = |text: &str, name: &str| -> f64 {
            let line = text.lines().find(|line| line.starts_with(name)).expect(name);
            line.split(' ').next_back().unwrap().parse().unwrap()
        };
        let (first, second) = (text(), text());
        assert!(value(&first, "process_resident_memory_bytes") > 100_000.0, "{first}");
        assert!(value(&first, "process_start_time_seconds") > 1.7e9, "{first}");
        let cpu = "process_cpu_seconds_total";
        assert!(value(&first, cpu) > 0.0 && value(&second, cpu) >= value(&first, cpu), "{first} {second}");
    }
}
