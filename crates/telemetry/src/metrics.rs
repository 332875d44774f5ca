//! Declares the metrics of a process: one line per metric, with field, type, name and help text.

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, exponential_buckets,
};

/// Declares a struct of metrics and its function `register`, which creates each metric in a registry.
///
/// ```
/// telemetry::metrics! {
///     /// Metrics of a kettle.
///     pub struct Kettle(new) {
///         boils: prometheus::IntCounter = new.counter("kettle_boils_total", "Times that water boiled"),
///         heating: prometheus::IntGauge = new.count("kettle_heating", "1 while the kettle heats"),
///     }
/// }
/// let registry = prometheus::Registry::new();
/// Kettle::register(&registry).boils.inc();
/// assert_eq!(registry.gather().len(), 2);
/// ```
#[macro_export]
macro_rules! metrics {
    ($(#[$attribute:meta])* $visible:vis struct $name:ident($new:ident) {
        $($(#[$note:meta])* $reach:vis $field:ident: $type:ty = $value:expr),* $(,)?
    }) => {
        $(#[$attribute])*
        $visible struct $name { $($(#[$note])* $reach $field: $type),* }

        impl $name {
            /// Creates and registers the metrics.
            ///
            /// # Panics
            /// If two metrics have the same name.
            $visible fn register(registry: &prometheus::Registry) -> Self {
                let $new = $crate::NewMetric(registry);
                Self { $($field: $value),* }
            }
        }
    };
}

/// Creates metrics in a registry, for [`metrics!`](crate::metrics!). Every function panics if the name is already
/// registered.
#[derive(Clone, Copy, Debug)]
pub struct NewMetric<'a>(pub &'a Registry);

impl NewMetric<'_> {
    fn add<C: Collector + Clone + 'static>(self, metric: prometheus::Result<C>) -> C {
        let metric = metric.expect("a valid name");
        self.0.register(Box::new(metric.clone())).expect("names differ");
        metric
    }

    /// A counter of events.
    pub fn counter(self, name: &str, help: &str) -> IntCounter {
        self.add(IntCounter::new(name, help))
    }

    /// A counter with fractions, such as seconds.
    pub fn sum(self, name: &str, help: &str) -> Counter {
        self.add(Counter::new(name, help))
    }

    pub fn gauge(self, name: &str, help: &str) -> Gauge {
        self.add(Gauge::new(name, help))
    }

    /// A gauge that is NaN until it is first set, because 0 could be a value.
    pub fn score(self, name: &str, help: &str) -> Gauge {
        let gauge = self.gauge(name, help);
        gauge.set(f64::NAN);
        gauge
    }

    /// A gauge of whole numbers.
    pub fn count(self, name: &str, help: &str) -> IntGauge {
        self.add(IntGauge::new(name, help))
    }

    /// A counter for one value of a label.
    pub fn counter_of(self, (name, help, label): (&str, &str, &str), value: &str) -> IntCounter {
        self.add(IntCounter::with_opts(Opts::new(name, help).const_label(label, value)))
    }

    /// Counters by label. All `values` are exported from the start.
    pub fn counters(self, name: &str, help: &str, label: &str, values: &[&str]) -> IntCounterVec {
        let counters = self.add(IntCounterVec::new(Opts::new(name, help), &[label]));
        values.iter().for_each(|value| drop(counters.with_label_values(&[*value])));
        counters
    }

    /// Counters with fractions, by label. All `values` are exported from the start.
    pub fn sums(self, name: &str, help: &str, label: &str, values: &[&str]) -> CounterVec {
        let sums = self.add(CounterVec::new(Opts::new(name, help), &[label]));
        values.iter().for_each(|value| drop(sums.with_label_values(&[*value])));
        sums
    }

    /// Gauges of whole numbers, by label. All `values` are exported from the start.
    pub fn counts(self, name: &str, help: &str, label: &str, values: &[&str]) -> IntGaugeVec {
        let counts = self.add(IntGaugeVec::new(Opts::new(name, help), &[label]));
        values.iter().for_each(|value| drop(counts.with_label_values(&[*value])));
        counts
    }

    /// A histogram with `count` buckets. The first upper bound is `first`; each further one is `factor` times the
    /// previous.
    pub fn histogram(self, name: &str, help: &str, (first, factor, count): (f64, f64, usize)) -> Histogram {
        let buckets = exponential_buckets(first, factor, count).expect("a growing series");
        self.add(Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets)))
    }
}
