//! Asks a live Prometheus whether every panel has something to show.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::panel::Dashboard;

/// How long one answer may take.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);

/// A Prometheus, by its address.
#[derive(Clone, Debug)]
pub struct Prometheus {
    authority: String,
    prefix: String,
}

/// A query that has nothing to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    pub dashboard: &'static str,
    pub panel: &'static str,
    /// Which of its queries.
    pub expression: String,
    pub reason: String,
}

impl Prometheus {
    /// By a URL such as `http://127.0.0.1:9090`.
    pub fn new(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://").with_context(|| format!("{url} must begin with http://"))?;
        let (authority, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let authority =
            if authority.contains(':') { authority.to_owned() } else { format!("{authority}:80") };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        Ok(Self { authority, prefix })
    }

    /// Every query of these dashboards that has nothing to show now; rates are over `window`, such as `1m`.
    pub fn silent(&self, dashboards: &[Dashboard], window: &str) -> Result<Vec<Silent>> {
        let mut silent = Vec::new();
        for dashboard in dashboards {
            for panel in dashboard.panels() {
                for query in &panel.queries {
                    let expression = query.expression.replace("$__rate_interval", window);
                    let answer = self.get(&format!("/api/v1/query?query={}", encoded(&expression)))?;
                    if let Err(reason) = has_numbers(&answer) {
                        silent.push(Silent {
                            dashboard: dashboard.name,
                            panel: panel.title,
                            expression,
                            reason,
                        });
                    }
                }
            }
        }
        Ok(silent)
    }

    /// HTTP/1.0, so that the answer comes in one piece and ends with the connection.
    fn get(&self, path: &str) -> Result<Value> {
        let at = || format!("no answer from Prometheus at {}", self.authority);
        let mut stream = TcpStream::connect(&self.authority).with_context(at)?;
        stream.set_read_timeout(Some(ANSWER_WAIT_MAX))?;
        let (prefix, host) = (&self.prefix, &self.authority);
        write!(stream, "GET {prefix}{path} HTTP/1.0\r\nHost: {host}\r\n\r\n").with_context(at)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).with_context(at)?;
        let answer = String::from_utf8_lossy(&answer);
        let Some((_, body)) = answer.split_once("\r\n\r\n") else {
            bail!("{} speaks no HTTP", self.authority)
        };
        serde_json::from_str(body).with_context(|| format!("{} is no Prometheus: {body}", self.authority))
    }
}

/// Whether an answer of the query API has at least one number, or why not.
fn has_numbers(answer: &Value) -> Result<(), String> {
    if answer["status"] != "success" {
        return Err(answer["error"].as_str().unwrap_or("an unknown error").to_owned());
    }
    let series = answer["data"]["result"].as_array().map_or(&[][..], Vec::as_slice);
    if series.is_empty() {
        return Err("no series".into());
    }
    let is_number = |of: &Value| of["value"][1].as_str().is_some_and(|value| value != "NaN");
    if series.iter().any(is_number) { Ok(()) } else { Err("only NaN".into()) }
}

/// Percent-encoding of everything that is not a letter or a digit.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::panel::{DashboardPanel, DashboardRow, Unit};
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    /// Answers each request with the next of these bodies, and gives what was asked for.
    fn prometheus(bodies: Vec<&'static str>) -> (Prometheus, std::thread::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/prefix/", listener.local_addr().unwrap());
        let serve = move |body: &str| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let request = lines.next().unwrap().unwrap();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}").unwrap();
            request
        };
        let answers = std::thread::spawn(move || bodies.into_iter().map(serve).collect());
        (Prometheus::new(&url).unwrap(), answers)
    }

    #[test]
    fn queries_without_a_number_are_named_with_the_reason() {
        let some = r#"{"status":"success","data":{"result":[{"value":[0,"NaN"]},{"value":[0,"0"]}]}}"#;
        let nan = r#"{"status":"success","data":{"result":[{"value":[0,"NaN"]}]}}"#;
        let none = r#"{"status":"success","data":{"result":[]}}"#;
        let wrong = r#"{"status":"error","error":"parse error"}"#;
        let (prometheus, answers) = prometheus(vec![some, nan, none, wrong]);
        let queries = [("", "rate(a[$__rate_interval])"), ("", "b"), ("", "c"), ("", "d")];
        let panel = DashboardPanel::lines("panel", Unit::Number, "", &queries);
        let page =
            Dashboard { name: "page", title: "", about: "", rows: vec![DashboardRow::new("", [panel])] };
        let silent = prometheus.silent(&[page], "1m").unwrap();
        let found: Vec<_> = silent.iter().map(|of| (of.expression.as_str(), of.reason.as_str())).collect();
        assert_eq!(found, [("b", "only NaN"), ("c", "no series"), ("d", "parse error")]);
        let asked = answers.join().unwrap();
        assert_eq!(asked[0], "GET /prefix/api/v1/query?query=rate%28a%5B1m%5D%29 HTTP/1.0");
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        assert!(Prometheus::new("localhost:9090").unwrap_err().to_string().contains("http://"));
    }
}
