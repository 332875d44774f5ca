//! The report as one HTML file: readable on a phone, in the dark and on paper, with nothing to fetch.

use std::fmt::Write;

use anyhow::Result;

use super::{ABOUT, TITLE, conditions, missing, verdict};
use crate::figure::{Claim, Figure, FigureTable};

/// Narrow columns first; a table that is wider than the page scrolls by itself. Pictures are on white, as printed.
const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--line:#d5dae0;--soft:#f5f7f9;--good:#00664a;--bad:#a63c00;--open:#5a6068}\
@media(prefers-color-scheme:dark){:root{--ink:#e3e7eb;--paper:#14171a;--line:#3a4149;--soft:#1d2125;--good:#4cc9a0;--bad:#ff9a5c;--open:#a3abb3}}\
body{margin:0 auto;padding:1rem;max-width:60rem;background:var(--paper);color:var(--ink);font:1rem/1.5 system-ui,sans-serif}\
h1{font-size:1.5rem;line-height:1.25}h2{font-size:1.25rem;margin-top:3rem;border-top:1px solid var(--line);padding-top:1rem}\
.scroll{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.875rem}\
caption{text-align:left;padding:.25rem 0;color:var(--open)}\
th,td{text-align:left;vertical-align:top;padding:.3rem .6rem;border-bottom:1px solid var(--line)}th{background:var(--soft)}\
td{font-variant-numeric:tabular-nums}.claims td{min-width:8rem}\
.holds{color:var(--good);font-weight:600}.fails{color:var(--bad);font-weight:600}.open{color:var(--open);font-weight:600}\
figure{margin:1.5rem 0}figure img{display:block;max-width:100%;height:auto;background:#fff;border-radius:.25rem}\
figcaption,.conditions{font-size:.875rem;color:var(--open)}a{color:inherit}\
details{margin:1rem 0}summary{cursor:pointer}";

/// The whole page. `picture` gives a picture's address, which holds it.
pub fn page(figures: &[Figure], picture: &dyn Fn(&str) -> Result<String>) -> Result<String> {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p>{}</p>\n",
        escape(TITLE),
        escape(TITLE),
        escape(ABOUT)
    );
    summary(&mut out, figures);
    for figure in figures {
        section(&mut out, figure, picture)?;
    }
    let missing = missing(figures);
    if !missing.is_empty() {
        let commands: Vec<_> =
            missing.iter().map(|command| format!("<code>{}</code>", escape(command))).collect();
        let _ = write!(out, "<h2>Not made yet</h2>\n<p>{}</p>\n", commands.join(", "));
    }
    out += "</body>\n</html>\n";
    Ok(out)
}

/// All claims in one table.
fn summary(out: &mut String, figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    let rows = figures.iter().flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)));
    *out += "<div class=\"scroll\"><table class=\"claims\">\n<tr><th>figure</th><th>claim</th><th>whose</th><th>verdict</th></tr>\n";
    for (figure, claim) in rows {
        let name = escape(&figure.name);
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td>{}</td><td>{}</td>{}</tr>",
            escape(&claim.claim),
            escape(claim.whose.name()),
            verdict_cell(claim)
        );
    }
    *out += "</table></div>\n";
}

fn section(out: &mut String, figure: &Figure, picture: &dyn Fn(&str) -> Result<String>) -> Result<()> {
    let name = escape(&figure.name);
    let _ = writeln!(out, "<section id=\"{name}\">\n<h2>{name}: {}</h2>", escape(&figure.title));
    let _ = writeln!(
        out,
        "<p>{}</p>\n<p class=\"conditions\">{}</p>",
        escape(&figure.about),
        escape(&conditions(figure))
    );
    claims(out, &figure.claims);
    for shown in &figure.pictures {
        let caption = escape(&shown.caption);
        let _ = writeln!(
            out,
            "<figure><img src=\"{}\" alt=\"{caption}\" loading=\"lazy\"><figcaption>{caption} \
             ({}.png, .svg)</figcaption></figure>",
            picture(&shown.stem)?,
            escape(&shown.stem)
        );
    }
    figure.tables.iter().for_each(|rows| table(out, rows));
    if !figure.settings.is_empty() {
        *out += "<details><summary>Settings</summary>\n";
        let rows = figure.settings.iter().map(|(key, text)| vec![key.clone(), text.clone()]).collect();
        let columns = ["setting", "value"].map(str::to_owned).to_vec();
        table(out, &FigureTable { caption: String::new(), columns, rows });
        *out += "</details>\n";
    }
    *out += "</section>\n";
    Ok(())
}

fn claims(out: &mut String, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    *out += "<div class=\"scroll\"><table class=\"claims\">\n<tr><th>claim</th><th>whose</th><th>measured</th><th>verdict</th></tr>\n";
    for claim in claims {
        let [said, whose, measured] = [&claim.claim, claim.whose.name(), &claim.measured].map(escape);
        let verdict = verdict_cell(claim);
        let _ = writeln!(out, "<tr><td>{said}</td><td>{whose}</td><td>{measured}</td>{verdict}</tr>");
    }
    *out += "</table></div>\n";
}

fn verdict_cell(claim: &Claim) -> String {
    let word = verdict(claim.verdict);
    format!("<td class=\"{word}\">{word}</td>")
}

fn table(out: &mut String, table: &FigureTable) {
    let cells = |cells: &[String], tag: &str| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    *out += "<div class=\"scroll\"><table>\n";
    if !table.caption.is_empty() {
        let _ = writeln!(out, "<caption>{}</caption>", escape(&table.caption));
    }
    let _ = writeln!(out, "<tr>{}</tr>", cells(&table.columns, "th"));
    for row in &table.rows {
        let _ = writeln!(out, "<tr>{}</tr>", cells(row, "td"));
    }
    *out += "</table></div>\n";
}

/// Text that is only text, in an element or in an attribute.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_gets_out_of_an_attribute_or_an_element() {
        assert_eq!(super::escape("<a href='x\"'>&"), "&lt;a href=&#39;x&quot;&#39;&gt;&amp;");
    }
}
