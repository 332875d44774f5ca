//! Marks as an SVG element within an HTML page.
//!
//! Every mark says its colour twice: as an attribute, by which the picture is right on its own, and as a class, by which
//! the page's style overrules it, for a dark page say. The letters are the page's and not those that were measured;
//! DejaVu is a wide font, so that most others fit.

use std::fmt::Write;

use crate::canvas::Sheet;
use crate::colour::Ink;
use crate::mark::{Anchor, Mark, Point};

/// The sheet as an element. It has no size but a shape, and a text for those who do not see it.
pub fn element(sheet: &Sheet, id: &str, title: &str, description: &str) -> String {
    let [id, title, description] = [id, title, description].map(escaped);
    let [width, height] =
        [sheet.size.0, sheet.size.1].map(|pixels| length(f64::from(pixels) / sheet.magnification));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         stroke-linejoin=\"round\" aria-labelledby=\"{id}-title {id}-text\"><title id=\"{id}-title\">{title}</title>\
         <desc id=\"{id}-text\">{description}</desc>\n"
    );
    sheet.marks.iter().for_each(|mark| add(&mut out, mark));
    out.push_str("</svg>\n");
    out
}

/// Text as it may stand between tags or in quotes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write these.
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push(' ');
            }
            _ => out.push(letter),
        }
    }
    out
}

fn add(out: &mut String, mark: &Mark) {
    // Writing to a string does not fail.
    let _ = match mark {
        Mark::Line { points, ink, width } => writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"{}\" {}/>",
            places(points),
            length(*width),
            colour(*ink, 1.0),
        ),
        Mark::Area { corners, ink, opacity } => writeln!(
            out,
            "<polygon points=\"{}\" fill=\"currentColor\" {}/>",
            places(corners),
            colour(*ink, *opacity),
        ),
        Mark::Disc { centre: (x, y), radius, ink, opacity } => writeln!(
            out,
            "<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"currentColor\" {}/>",
            length(*x),
            length(*y),
            length(*radius),
            colour(*ink, *opacity),
        ),
        Mark::Words { words, at, lettering, ink, anchor, upwards } => {
            let (x, y) = (length(at.0), length(at.1));
            let turn = if *upwards { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
            writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{}\" font-weight=\"{}\" text-anchor=\"{}\" \
                 fill=\"currentColor\" {}{turn}>{}</text>",
                length(lettering.size),
                if lettering.bold { 700 } else { 400 },
                match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                },
                colour(*ink, 1.0),
                escaped(words),
            )
        }
    };
}

/// Attributes for an ink.
fn colour(ink: Ink, opacity: f64) -> String {
    let (class, Ink(red, green, blue), strength) = match ink.named() {
        Some((name, ink, strength)) => (format!(" class=\"ink-{name}\""), ink, strength),
        None => (String::new(), ink, 1.0),
    };
    let opacity = opacity * strength;
    let opacity = if opacity < 1.0 { format!(" opacity=\"{}\"", length(opacity)) } else { String::new() };
    format!("color=\"#{red:02x}{green:02x}{blue:02x}\"{class}{opacity}")
}

fn places(points: &[Point]) -> String {
    let places: Vec<String> = points.iter().map(|(x, y)| format!("{},{}", length(*x), length(*y))).collect();
    places.join(" ")
}

/// Two decimals are finer than any screen.
fn length(length: f64) -> String {
    let written = format!("{length:.2}");
    written.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colour::PALE;
    use crate::lettering::Lettering;

    fn drawn(mark: Mark) -> String {
        let sheet = Sheet { size: (50, 40), magnification: 1.0, marks: vec![mark] };
        element(&sheet, "speed", "Speed", "now 5")
    }

    #[test]
    fn it_has_a_shape_and_a_text_and_no_size() {
        let svg = element(
            &Sheet { size: (900, 450), magnification: 1.125, marks: Vec::new() },
            "a",
            "<b>",
            "c & d",
        );
        assert!(svg.contains("viewBox=\"0 0 800 400\"") && !svg.contains(" width="), "{svg}");
        assert!(svg.contains("aria-labelledby=\"a-title a-text\""), "{svg}");
        assert!(svg.contains("<title id=\"a-title\">&lt;b&gt;</title>"), "{svg}");
        assert!(svg.contains("<desc id=\"a-text\">c &amp; d</desc>") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn a_line_is_coloured_by_class_and_without_a_style() {
        let blue = Ink(0, 114, 178);
        let line = |ink| drawn(Mark::stroke((1.0, 2.0), (3.456, 4.0), ink, 2.2));
        let solid = "points=\"1,2 3.46,4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.2\" \
                     color=\"#0072b2\" class=\"ink-blue\"/>";
        assert!(line(blue).contains(solid), "{}", line(blue));
        let pale = "color=\"#0072b2\" class=\"ink-blue\" opacity=\"0.4\"/>";
        assert!(line(blue.thinned(PALE)).contains(pale), "{}", line(blue.thinned(PALE)));
        assert!(line(Ink(1, 2, 3)).contains("color=\"#010203\"/>"));
    }

    #[test]
    fn areas_and_discs_are_filled_and_words_turn() {
        let grey = Ink::QUIET;
        let corners = vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)];
        let area = drawn(Mark::Area { corners, ink: grey, opacity: 0.18 });
        assert!(
            area.contains("<polygon points=\"0,0 1,0 1,1\" fill=\"currentColor\"")
                && area.contains("opacity=\"0.18\"")
        );
        let disc = drawn(Mark::Disc { centre: (5.0, 6.0), radius: 3.0, ink: grey, opacity: 1.0 });
        assert!(disc.contains("<circle cx=\"5\" cy=\"6\" r=\"3\"") && !disc.contains("opacity"), "{disc}");
        let words = Mark::Words {
            words: "a < b".into(),
            at: (7.0, 8.0),
            lettering: Lettering::HEADING,
            ink: grey,
            anchor: Anchor::Middle,
            upwards: true,
        };
        let words = drawn(words);
        assert!(words.contains("text-anchor=\"middle\"") && words.contains("font-weight=\"700\""), "{words}");
        assert!(words.contains("transform=\"rotate(-90 7 8)\">a &lt; b</text>"), "{words}");
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_markup() {
        assert_eq!(escaped("a \"b\" <c> & d\u{0}e é −1"), "a &quot;b&quot; &lt;c&gt; &amp; d e é −1");
    }
}
