//! Formats numbers for axes and text.

/// Powers of ten are written out between these exponents, both included.
const WRITTEN_OUT: std::ops::RangeInclusive<i32> = -3..=6;

const RAISED_DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];

/// The raised letters a to z; Unicode has no q.
const RAISED_LETTERS: &str = "ᵃᵇᶜᵈᵉᶠᵍʰⁱʲᵏˡᵐⁿᵒᵖ ʳˢᵗᵘᵛʷˣʸᶻ";

/// A number with up to six decimals: a real minus, thousands apart, no tail of rounding. Tiny and huge ones as `2×10⁻⁷`.
pub fn number(value: f64) -> String {
    if value == 0.0 || (1e-4..1e9).contains(&value.abs()) { plain(value, 6) } else { scientific(value) }
}

/// Numbers that are so far apart, all written in the same way.
pub fn numbers(values: &[f64], step: f64) -> Vec<String> {
    let largest = values.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let out_of_hand = largest > 0.0 && !(1e-3..1e8).contains(&largest);
    // Two decimals of a mantissa must be enough to tell neighbours apart.
    let write = |value: &f64| {
        if out_of_hand && step >= largest / 100.0 && *value != 0.0 {
            scientific(*value)
        } else {
            plain(*value, decimals(step))
        }
    };
    values.iter().map(write).collect()
}

/// 10 to these powers, all written in the same way.
pub fn powers(exponents: &[i32]) -> Vec<String> {
    let out_of_hand = exponents.iter().any(|exponent| !WRITTEN_OUT.contains(exponent));
    let write = |exponent: &i32| {
        if out_of_hand { format!("10{}", raised_integer(*exponent)) } else { plain(10f64.powi(*exponent), 6) }
    };
    exponents.iter().map(write).collect()
}

/// Raises what follows a `^`: `ρ^max` becomes `ρᵐᵃˣ`. What has no raised letters is left as it is.
pub fn raised(text: &str) -> String {
    let mut parts = text.split('^');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(part.len());
        match part[..end].chars().map(raised_letter).collect::<Option<String>>() {
            Some(letters) if !letters.is_empty() => out.push_str(&letters),
            _ => out.extend(["^", &part[..end]]),
        }
        out.push_str(&part[end..]);
    }
    out
}

fn raised_letter(letter: char) -> Option<char> {
    let found = match letter {
        '0'..='9' => RAISED_DIGITS.get(letter.to_digit(10)? as usize).copied(),
        'a'..='z' => RAISED_LETTERS.chars().nth(letter as usize - 'a' as usize),
        _ => None,
    };
    found.filter(|found| *found != ' ')
}

fn raised_integer(value: i32) -> String {
    let sign = if value < 0 { "⁻" } else { "" };
    let digits = value.unsigned_abs().to_string();
    sign.chars().chain(digits.chars().filter_map(raised_letter)).collect()
}

/// How many decimals tell numbers apart that are so far from each other.
fn decimals(step: f64) -> usize {
    (-step.log10() - 1e-9).ceil().clamp(0.0, 15.0) as usize
}

fn plain(value: f64, decimals: usize) -> String {
    let written = format!("{:.decimals$}", value.abs());
    let (whole, rest) = written.split_once('.').unwrap_or((&written, ""));
    let rest = rest.trim_end_matches('0');
    let is_zero = rest.is_empty() && whole == "0";
    let sign = if value < 0.0 && !is_zero { "−" } else { "" };
    let point = if rest.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{rest}", grouped(whole))
}

fn scientific(value: f64) -> String {
    // Rust writes `-2.50e-7`, rounded; the rest is taste.
    let written = format!("{:.2e}", value.abs());
    let Some((mantissa, exponent)) = written.split_once('e') else { return written };
    let mantissa = mantissa.trim_end_matches('0').trim_end_matches('.');
    let sign = if value < 0.0 { "−" } else { "" };
    let times = if mantissa == "1" { String::new() } else { format!("{mantissa}×") };
    format!("{sign}{times}10{}", raised_integer(exponent.parse().unwrap_or_default()))
}

/// Groups digits by three: `1,200,000`.
fn grouped(digits: &str) -> String {
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let check = |value: f64, expected: &str| assert_eq!(number(value), expected);
        check(0.0, "0");
        check(-0.0, "0");
        check(0.1 + 0.2, "0.3");
        check(-20.5, "−20.5");
        check(25_000.0, "25,000");
        check(1_200_000.0, "1,200,000");
        check(0.999_999_99, "1");
        check(0.000_000_1, "10⁻⁷");
        check(-2.5e-7, "−2.5×10⁻⁷");
        check(3e12, "3×10¹²");
    }

    #[test]
    fn numbers_of_one_axis_are_written_alike() {
        assert_eq!(numbers(&[0.0, 0.5, 1.0], 0.5), ["0", "0.5", "1"]);
        assert_eq!(numbers(&[0.0, 5e-5, 1e-4], 5e-5), ["0", "5×10⁻⁵", "10⁻⁴"]);
        assert_eq!(numbers(&[-2e8, 0.0, 2e8], 2e8), ["−2×10⁸", "0", "2×10⁸"]);
        assert_eq!(numbers(&[1e9, 1e9 + 1.0], 1.0), ["1,000,000,000", "1,000,000,001"]);
        assert_eq!(numbers(&[-0.05, 0.0], 0.05), ["−0.05", "0"]);
    }

    #[test]
    fn powers_of_ten_are_written_out_if_all_are_handy() {
        assert_eq!(powers(&[-1, 0, 1, 3]), ["0.1", "1", "10", "1,000"]);
        assert_eq!(powers(&[-4, 0, 4]), ["10⁻⁴", "10⁰", "10⁴"]);
    }

    #[test]
    fn what_follows_a_caret_is_raised() {
        assert_eq!(raised("ρ^max·|TD|"), "ρᵐᵃˣ·|TD|");
        assert_eq!(raised("N^2"), "N²");
        assert_eq!(raised("a^q"), "a^q");
        assert_eq!(raised("^"), "^");
        assert_eq!(raised("plain"), "plain");
    }
}
