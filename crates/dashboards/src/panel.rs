//! The vocabulary: a dashboard has rows of panels, a panel has queries.

/// Columns of a row.
pub const COLUMNS: u32 = 12;

/// A page of panels.
#[derive(Clone, Debug)]
pub struct Dashboard {
    /// Its name in file names and addresses.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// What it is for, in a sentence.
    pub about: &'static str,
    /// From top to bottom.
    pub rows: Vec<DashboardRow>,
}

impl Dashboard {
    /// Every panel, from top to bottom.
    pub fn panels(&self) -> impl Iterator<Item = &DashboardPanel> {
        self.rows.iter().flat_map(|row| &row.panels)
    }
}

/// Panels under one heading; as many beside each other as fit.
#[derive(Clone, Debug)]
pub struct DashboardRow {
    pub title: &'static str,
    /// From left to right.
    pub panels: Vec<DashboardPanel>,
}

impl DashboardRow {
    pub fn new(title: &'static str, panels: impl IntoIterator<Item = DashboardPanel>) -> Self {
        Self { title, panels: panels.into_iter().collect() }
    }

    /// The same with all panels so many columns wide.
    pub fn wide(self, width: u32) -> Self {
        Self { panels: self.panels.into_iter().map(|panel| panel.wide(width)).collect(), ..self }
    }
}

/// How a panel looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The newest value, large.
    Stat,
    /// A line for each series.
    Lines,
    /// Areas on top of each other.
    Stack,
    /// A histogram's buckets over time; its one query gives the buckets by `le`.
    Heatmap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things, or a number without a unit; shortened to k, M, G.
    Number,
    /// A number of these; shortened likewise.
    Of(&'static str),
    /// Seconds; shown as µs, ms, minutes, hours.
    Seconds,
    /// Bytes; shown as KiB, MiB, GiB.
    Bytes,
    /// A share from 0 to 1; shown in per cent.
    Share,
}

/// One query of a panel.
#[derive(Clone, Debug)]
pub struct Query {
    /// Name of its series; `{label}` stands for the value of a label.
    pub legend: &'static str,
    /// The expression. `$__rate_interval` is the window for rates.
    pub expression: &'static str,
}

#[derive(Clone, Debug)]
pub struct DashboardPanel {
    pub title: &'static str,
    /// How to read it, in a sentence or two.
    pub about: &'static str,
    pub shape: Shape,
    pub unit: Unit,
    /// Columns that it takes.
    pub width: u32,
    /// What it asks for.
    pub queries: Vec<Query>,
}

impl DashboardPanel {
    fn new(
        shape: Shape,
        width: u32,
        title: &'static str,
        unit: Unit,
        about: &'static str,
        queries: &[(&'static str, &'static str)],
    ) -> Self {
        let queries = queries.iter().map(|&(legend, expression)| Query { legend, expression }).collect();
        Self { title, about, shape, unit, width, queries }
    }

    /// One number, as large as it fits.
    pub fn stat(title: &'static str, unit: Unit, about: &'static str, expression: &'static str) -> Self {
        Self::new(Shape::Stat, 2, title, unit, about, &[(title, expression)])
    }

    /// Lines, each by its legend and expression.
    pub fn lines(
        title: &'static str,
        unit: Unit,
        about: &'static str,
        queries: &[(&'static str, &'static str)],
    ) -> Self {
        Self::new(Shape::Lines, 3, title, unit, about, queries)
    }

    /// Areas on top of each other, likewise.
    pub fn stack(
        title: &'static str,
        unit: Unit,
        about: &'static str,
        queries: &[(&'static str, &'static str)],
    ) -> Self {
        Self::new(Shape::Stack, 3, title, unit, about, queries)
    }

    /// A histogram over time, from an expression that gives its buckets by `le`.
    pub fn heatmap(title: &'static str, unit: Unit, about: &'static str, buckets: &'static str) -> Self {
        Self::new(Shape::Heatmap, 6, title, unit, about, &[("{le}", buckets)])
    }

    /// The same, so many columns wide.
    pub fn wide(self, width: u32) -> Self {
        Self { width, ..self }
    }
}

/// A percentile of a histogram over the last two minutes, over all series or by a label.
macro_rules! percentile {
    ($share:literal, $histogram:literal $(by $label:literal)? $(where $matcher:literal)?) => {
        concat!(
            "histogram_quantile(", $share, ", sum by (le", $(", ", $label,)? ") (rate(",
            $histogram, "_bucket", $("{", $matcher, "}",)? "[2m])))"
        )
    };
}

/// The mean of a histogram over the last two minutes, over all series.
macro_rules! mean {
    ($histogram:literal $(where $matcher:literal)?) => {
        concat!(
            "sum(rate(", $histogram, "_sum", $("{", $matcher, "}",)? "[2m])) / ",
            "sum(rate(", $histogram, "_count", $("{", $matcher, "}",)? "[2m]))"
        )
    };
}

/// The rate of a counter in a second, summed over all series.
macro_rules! rate {
    ($counter:literal $(where $matcher:literal)?) => {
        concat!("sum(rate(", $counter, $("{", $matcher, "}",)? "[$__rate_interval]))")
    };
}

pub(crate) use {mean, percentile, rate};
