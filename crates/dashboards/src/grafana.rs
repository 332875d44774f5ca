//! A dashboard as Grafana's JSON.
//!
//! Only what differs from Grafana's defaults is written. `deploy/grafana/schema` checks it against Grafana's own types.

use serde_json::{Value, json};

use crate::panel::{COLUMNS, Dashboard, DashboardPanel, DashboardRow, Query, Shape, Unit};

/// Grafana's grid is this many columns wide.
const GRID: u32 = 24;
/// The data source that `deploy/grafana/provisioning` sets up.
const DATA_SOURCE: &str = "quiver-prometheus";
/// The version of the format that this is written in.
const SCHEMA_VERSION: u32 = 39;

pub fn file(dashboard: &Dashboard) -> String {
    let text = serde_json::to_string_pretty(&json(dashboard)).expect("strings and numbers");
    text + "\n"
}

fn json(dashboard: &Dashboard) -> Value {
    json!({
        "uid": format!("quiver-{}", dashboard.name),
        "title": dashboard.title,
        "description": dashboard.about,
        "tags": ["quiver"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": true,
        "timezone": "browser",
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "graphTooltip": 1,
        "links": [{
            "type": "dashboards",
            "title": "Quiver",
            "tags": ["quiver"],
            "asDropdown": false,
            "includeVars": false,
            "keepTime": true,
            "targetBlank": false,
            "icon": "external link",
            "tooltip": "",
        }],
        "panels": panels(&dashboard.rows),
    })
}

fn panels(rows: &[DashboardRow]) -> Vec<Value> {
    let mut panels = Vec::new();
    let mut y = 0;
    for row in rows {
        panels.push(json!({
            "id": panels.len() + 1,
            "type": "row",
            "title": row.title,
            "collapsed": false,
            "panels": [],
            "gridPos": { "x": 0, "y": y, "w": GRID, "h": 1 },
        }));
        y += 1;
        let (mut column, mut tallest) = (0, 0);
        for panel in &row.panels {
            if column + panel.width > COLUMNS {
                (column, y, tallest) = (0, y + tallest, 0);
            }
            let height = if panel.shape == Shape::Stat { 4 } else { 8 };
            let scale = GRID / COLUMNS;
            let place = json!({ "x": column * scale, "y": y, "w": panel.width * scale, "h": height });
            panels.push(one(panel, panels.len() + 1, &place));
            column += panel.width;
            tallest = tallest.max(height);
        }
        y += tallest;
    }
    panels
}

fn one(panel: &DashboardPanel, id: usize, place: &Value) -> Value {
    let (kind, options, custom) = look(panel);
    let mut defaults = json!({ "unit": unit(panel.unit), "custom": custom });
    if panel.unit == Unit::Share {
        defaults["min"] = json!(0);
    }
    json!({
        "id": id,
        "type": kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": data_source(),
        "gridPos": place,
        "fieldConfig": { "defaults": defaults, "overrides": [] },
        "options": options,
        "targets": targets(panel),
    })
}

/// The panel's kind, its options, and those of its fields.
fn look(panel: &DashboardPanel) -> (&'static str, Value, Value) {
    match panel.shape {
        Shape::Stat => (
            "stat",
            json!({
                "colorMode": "none",
                "graphMode": "area",
                "justifyMode": "auto",
                "orientation": "auto",
                "percentChangeColorMode": "standard",
                "reduceOptions": { "calcs": ["lastNotNull"], "fields": "", "values": false },
                "showPercentChange": false,
                "textMode": "value",
                "wideLayout": true,
            }),
            json!({}),
        ),
        Shape::Lines => ("timeseries", series_options(), json!({ "lineWidth": 2, "fillOpacity": 0 })),
        Shape::Stack => (
            "timeseries",
            series_options(),
            json!({ "lineWidth": 1, "fillOpacity": 40, "stacking": { "group": "A", "mode": "normal" } }),
        ),
        Shape::Heatmap => (
            "heatmap",
            json!({
                "calculate": false,
                "cellGap": 1,
                "color": {
                    "exponent": 0.5, "fill": "dark-blue", "mode": "scheme", "reverse": false,
                    "scale": "exponential", "scheme": "Blues", "steps": 64,
                },
                "exemplars": { "color": "rgba(255,0,255,0.7)" },
                "legend": { "show": true },
                "rowsFrame": { "layout": "auto" },
                "showValue": "never",
                "tooltip": { "mode": "single", "showColorScale": false, "yHistogram": true },
                "yAxis": { "axisPlacement": "left", "unit": unit(panel.unit) },
            }),
            json!({}),
        ),
    }
}

fn series_options() -> Value {
    json!({
        "legend": { "calcs": ["lastNotNull"], "displayMode": "list", "placement": "bottom", "showLegend": true },
        "tooltip": { "mode": "multi", "sort": "desc" },
    })
}

fn targets(panel: &DashboardPanel) -> Vec<Value> {
    let target = |(letter, query): (char, &Query)| {
        json!({
            "refId": letter.to_string(),
            "datasource": data_source(),
            "editorMode": "code",
            "expr": query.expression,
            "legendFormat": query.legend.replace('{', "{{").replace('}', "}}"),
            "range": true,
            "instant": false,
            "format": if panel.shape == Shape::Heatmap { "heatmap" } else { "time_series" },
        })
    };
    ('A'..='Z').zip(&panel.queries).map(target).collect()
}

fn data_source() -> Value {
    json!({ "type": "prometheus", "uid": DATA_SOURCE })
}

fn unit(unit: Unit) -> String {
    match unit {
        Unit::Number => "short".into(),
        Unit::Of(things) => format!("suffix: {things}"),
        Unit::Seconds => "s".into(),
        Unit::Bytes => "bytes".into(),
        Unit::Share => "percentunit".into(),
    }
}
