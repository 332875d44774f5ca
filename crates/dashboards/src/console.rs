//! A dashboard as a console template: Prometheus serves it, and it needs nothing else.
//!
//! The page is a skeleton and a list of what to ask for. How that is drawn is in `deploy/prometheus/console_libraries`,
//! which is written by hand and the same for all pages.

use serde_json::{Value, json};

use crate::SCRAPE_SECONDS;
use crate::panel::{Dashboard, DashboardPanel, Shape, Unit};

/// The page of a dashboard, with links to the others.
pub fn file(dashboard: &Dashboard, all: &[Dashboard]) -> String {
    let links = all.iter().map(|other| {
        let here = if other.name == dashboard.name { " aria-current=\"page\"" } else { "" };
        format!("      <a href=\"{}.html\"{here}>{}</a>\n", other.name, capital(other.name))
    });
    format!(
        "{{{{/* Made by quiver-dashboards from crates/dashboards/src/{name}.rs: change that. */}}}}\n\
         <!DOCTYPE html>\n\
         <html lang=\"en\">\n\
         \x20 <head>\n\
         \x20   <meta charset=\"utf-8\">\n\
         \x20   <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         \x20   <title>{title}</title>\n\
         {{{{template \"quiver_style\"}}}}\n\
         \x20 </head>\n\
         \x20 <body data-prefix=\"{{{{pathPrefix}}}}\" data-scrape-seconds=\"{SCRAPE_SECONDS}\">\n\
         \x20   <header>\n\
         \x20     <h1>{title}</h1>\n\
         \x20     <nav>\n\
         {links}\
         \x20     </nav>\n\
         {{{{template \"quiver_controls\"}}}}\n\
         \x20   </header>\n\
         \x20   <p class=\"about\">{about}.</p>\n\
         \x20   <main></main>\n\
         \x20   <script type=\"application/json\" id=\"dashboard\">\n\
         {json}\n\
         \x20   </script>\n\
         {{{{template \"quiver_format\"}}}}\n\
         {{{{template \"quiver_chart\"}}}}\n\
         {{{{template \"quiver_page\"}}}}\n\
         \x20 </body>\n\
         </html>\n",
        name = dashboard.name,
        title = dashboard.title,
        about = dashboard.about,
        links = links.collect::<String>(),
        json = serde_json::to_string_pretty(&rows(dashboard)).expect("strings and numbers"),
    )
}

fn capital(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}

fn rows(dashboard: &Dashboard) -> Value {
    let row = |row: &crate::DashboardRow| json!({ "title": row.title, "panels": row.panels.iter().map(panel).collect::<Vec<_>>() });
    dashboard.rows.iter().map(row).collect()
}

fn panel(panel: &DashboardPanel) -> Value {
    let shape = match panel.shape {
        Shape::Stat => "stat",
        Shape::Lines => "lines",
        Shape::Stack => "stack",
        Shape::Heatmap => "heatmap",
    };
    let (unit, of) = match panel.unit {
        Unit::Number => ("number", ""),
        Unit::Of(things) => ("number", things),
        Unit::Seconds => ("seconds", ""),
        Unit::Bytes => ("bytes", ""),
        Unit::Share => ("share", ""),
    };
    let queries =
        panel.queries.iter().map(|query| json!({ "legend": query.legend, "expression": query.expression }));
    json!({
        "title": panel.title,
        "about": panel.about,
        "shape": shape,
        "unit": unit,
        "of": of,
        "width": panel.width,
        "queries": queries.collect::<Vec<_>>(),
    })
}
