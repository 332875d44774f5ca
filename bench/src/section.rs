//! One part of the table: a title, columns, rows of numbers. Knows nothing of what was measured.

use std::fmt;

use serde_json::{Map, Value, json};
use settings::units::grouped;

/// Blanks between two columns.
const GAP: usize = 2;

/// The results of one topic.
#[derive(Debug)]
pub struct Section {
    /// The topic in one word.
    pub topic: &'static str,
    /// What is measured, in what unit.
    pub title: String,
    /// The columns after the row's name, no two alike: they are keys in JSON.
    pub columns: &'static [&'static str],
    pub rows: Vec<Row>,
}

#[derive(Debug)]
pub struct Row {
    pub name: String,
    /// A number per column; `None` where there is nothing to say.
    pub cells: Vec<Option<f64>>,
}

impl Section {
    /// A row's number in the column of that name.
    pub fn cell(&self, row: &Row, column: &str) -> Option<f64> {
        let index = self.columns.iter().position(|other| *other == column)?;
        row.cells[index]
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<Vec<String>> =
            self.rows.iter().map(|row| row.cells.iter().map(show).collect()).collect();
        let name_width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = shown.iter().map(|cells| cells[column].chars().count());
            cells.chain([self.columns[column].chars().count()]).max().unwrap_or(0) + GAP
        };
        writeln!(f, "{}: {}", self.topic, self.title)?;
        write!(f, "  {:name_width$}", "")?;
        for (index, column) in self.columns.iter().enumerate() {
            write!(f, "{column:>width$}", width = width(index))?;
        }
        writeln!(f)?;
        for (row, cells) in self.rows.iter().zip(&shown) {
            write!(f, "  {:name_width$}", row.name)?;
            for (index, cell) in cells.iter().enumerate() {
                write!(f, "{cell:>width$}", width = width(index))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// All sections as one JSON object, numbers not rounded.
pub fn json(machine: &[(&'static str, String)], sections: &[Section]) -> String {
    let row = |section: &Section, row: &Row| {
        let cells =
            section.columns.iter().zip(&row.cells).map(|(column, cell)| ((*column).to_owned(), json!(cell)));
        let name = ("row".to_owned(), json!(row.name));
        Value::Object([name].into_iter().chain(cells).collect())
    };
    let section = |section: &Section| {
        let rows: Vec<Value> = section.rows.iter().map(|line| row(section, line)).collect();
        json!({ "topic": section.topic, "title": section.title, "rows": rows })
    };
    let machine: Map<String, Value> =
        machine.iter().map(|(name, fact)| ((*name).to_owned(), json!(fact))).collect();
    let sections: Vec<Value> = sections.iter().map(section).collect();
    format!("{:#}", json!({ "machine": machine, "sections": sections }))
}

/// About three digits that matter, thousands apart.
fn show(cell: &Option<f64>) -> String {
    match *cell {
        None => "-".to_owned(),
        Some(number) if number.abs() < 9.995 => format!("{number:.2}"),
        Some(number) if number.abs() < 99.95 => format!("{number:.1}"),
        Some(number) => {
            let sign = if number < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(number.abs().round() as u64))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_the_digits_that_matter() {
        let check = |number, expected: &str| assert_eq!(show(&Some(number)), expected);
        check(0.0, "0.00");
        check(1.234, "1.23");
        check(9.999, "10.0");
        check(12.34, "12.3");
        check(99.99, "100");
        check(1_234.5, "1,235");
        check(-1_234_567.0, "-1,234,567");
        assert_eq!(show(&None), "-");
    }

    #[test]
    fn columns_are_aligned() {
        let row = |name: &str, cells| Row { name: name.to_owned(), cells };
        let section = Section {
            topic: "topic",
            title: "things per second".to_owned(),
            columns: &["best", "ratio"],
            rows: vec![row("a", vec![Some(12_345.0), None]), row("long", vec![Some(1.0), Some(0.5)])],
        };
        let expected =
            "topic: things per second\n          best  ratio\n  a     12,345      -\n  long    1.00   0.50\n";
        assert_eq!(section.to_string(), expected);
    }
}
