//! Finds the series that an expression asks for. Enough of PromQL for that and no more: Prometheus judges the rest.

/// A metric that an expression names, and what it asks of its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    pub name: String,
    /// Label and value of each matcher; the alternatives of a pattern are values of their own.
    pub matchers: Vec<(String, String)>,
}

/// Words that are followed by label names in parentheses.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// Words that are not metrics.
const OPERATORS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

/// Every series that an expression asks for, in its order.
pub fn selectors(expression: &str) -> Vec<Selector> {
    let mut reader = Reader { rest: expression };
    let mut found: Vec<Selector> = Vec::new();
    while let Some(next) = reader.rest.chars().next() {
        match next {
            '"' => drop(reader.quoted()),
            '[' => reader.skip_past(']'),
            '{' => {
                let matchers = reader.matchers();
                found.last_mut().expect("braces stand behind a metric").matchers = matchers;
            }
            'a'..='z' | 'A'..='Z' | '_' | ':' => {
                let word = reader.word();
                if GROUPING.contains(&word) {
                    reader.skip_parentheses();
                } else if !OPERATORS.contains(&word.to_lowercase().as_str()) && !reader.at_arguments() {
                    found.push(Selector { name: word.into(), matchers: Vec::new() });
                }
            }
            // Numbers and durations such as 1e3 or 5m, and variables.
            '0'..='9' | '$' => {
                reader.skip(1);
                reader.word();
            }
            other => reader.skip(other.len_utf8()),
        }
    }
    found
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn skip_past(&mut self, end: char) {
        self.rest = self.rest.split_once(end).map_or("", |(_, rest)| rest);
    }

    fn word(&mut self) -> &'a str {
        let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// A text in quotes; none of ours has a quote inside.
    fn quoted(&mut self) -> &'a str {
        let mut parts = self.rest.splitn(3, '"').skip(1);
        let text = parts.next().unwrap_or_default();
        self.rest = parts.next().unwrap_or_default();
        text
    }

    fn skip_parentheses(&mut self) {
        if self.rest.trim_start().starts_with('(') {
            self.skip_past(')');
        }
    }

    /// Whether the word just read is a function or an aggregation: its arguments follow, or its grouping.
    fn at_arguments(&self) -> bool {
        let next = self.rest.trim_start();
        next.starts_with('(')
            || ["by ", "by(", "without ", "without("].iter().any(|word| next.starts_with(word))
    }

    fn matchers(&mut self) -> Vec<(String, String)> {
        let mut matchers = Vec::new();
        self.skip(1);
        while !self.rest.is_empty() && !self.rest.starts_with('}') {
            let label = self.word();
            if label.is_empty() {
                self.skip(1);
                continue;
            }
            self.rest = self.rest.trim_start_matches(['=', '!', '~', ' ']);
            let values = self.quoted().split('|');
            matchers.extend(values.map(|value| (label.to_owned(), value.to_owned())));
        }
        self.skip_past('}');
        matchers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expected: &[(&str, &[(&str, &str)])]) {
        let found = selectors(expression);
        let found: Vec<(&str, Vec<(&str, &str)>)> = found
            .iter()
            .map(|selector| {
                let matchers =
                    selector.matchers.iter().map(|(label, value)| (label.as_str(), value.as_str()));
                (selector.name.as_str(), matchers.collect())
            })
            .collect();
        let expected: Vec<_> = expected.iter().map(|(name, matchers)| (*name, matchers.to_vec())).collect();
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn functions_numbers_windows_and_grouping_are_no_metrics() {
        check("sum by (le, instance) (rate(a_bucket[$__rate_interval])) > 1e3", &[("a_bucket", &[])]);
        check("max by(for)(b) / on() group_left() c offset 5m", &[("b", &[]), ("c", &[])]);
        check("count(d) or vector(0) unless Inf", &[("d", &[])]);
        check("max_over_time(quiver:e[15m:]) == 0.5", &[("quiver:e", &[])]);
        check("quantile(0.5, scalar(max(f)) - g)", &[("f", &[]), ("g", &[])]);
    }

    #[test]
    fn every_alternative_of_a_pattern_is_a_value() {
        let braces = r#"rate(a{x="one", y=~"two|three"}[1m]) + b{z!="four"}"#;
        check(braces, &[("a", &[("x", "one"), ("y", "two"), ("y", "three")]), ("b", &[("z", "four")])]);
    }
}
