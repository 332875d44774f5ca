//! The report as Markdown, with pictures beside it.

use std::fmt::Write;

use super::{ABOUT, TITLE, conditions, missing, verdict};
use crate::figure::Figure;

/// The whole page.
pub fn page(figures: &[Figure]) -> String {
    let mut out = format!("# {TITLE}\n\n{ABOUT}\n");
    for figure in figures {
        section(&mut out, figure);
    }
    let missing = missing(figures);
    if !missing.is_empty() {
        let commands: Vec<_> = missing.iter().map(|command| format!("`{command}`")).collect();
        let _ = write!(out, "\n## Not made yet\n\n{}\n", commands.join(", "));
    }
    out
}

fn section(out: &mut String, figure: &Figure) {
    let _ = write!(out, "\n## {}: {}\n\n", figure.name, escape(&figure.title));
    let _ = write!(out, "{}\n\n*{}*\n", escape(&figure.about), escape(&conditions(figure)));
    let claim_rows: Vec<Vec<String>> = figure
        .claims
        .iter()
        .map(|claim| {
            let (whose, verdict) = (claim.whose.name().to_owned(), verdict(claim.verdict).to_owned());
            vec![claim.claim.clone(), whose, claim.measured.clone(), verdict]
        })
        .collect();
    if !claim_rows.is_empty() {
        table(out, &["claim", "whose", "measured", "verdict"].map(str::to_owned), &claim_rows);
    }
    for picture in &figure.pictures {
        // In brackets a bracket would end the text.
        let alt = picture.caption.replace(['[', ']'], "");
        let _ = write!(out, "\n![{alt}]({}.png)\n\n{}\n", picture.stem, escape(&picture.caption));
    }
    for rows in &figure.tables {
        let _ = write!(out, "\n{}\n", escape(&rows.caption));
        table(out, &rows.columns, &rows.rows);
    }
    if !figure.settings.is_empty() {
        let settings: Vec<_> =
            figure.settings.iter().map(|(key, text)| format!("{} {}", escape(key), escape(text))).collect();
        let _ = write!(out, "\nSettings: {}.\n", settings.join("; "));
    }
}

fn table(out: &mut String, columns: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| escape(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let _ = write!(out, "\n{}|{}\n", line(columns), "---|".repeat(columns.len()));
    rows.iter().for_each(|row| *out += &line(row));
}

/// Text that means nothing to Markdown.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' => out.extend(['\\', letter]),
            '<' => out += "&lt;",
            '\n' => out.push(' '),
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cell_stays_a_cell() {
        assert_eq!(super::escape("|TD|*\n<b>"), "\\|TD\\|\\* &lt;b>");
    }
}
