//! Writes marks as SVG, the one format that a page is drawn in: as a file, from which a PNG is rasterised, or as an
//! element of an HTML page.
//!
//! A file names its colours and its font, and is right wherever it is opened. An element says every colour twice: as an
//! attribute, by which the picture is right on its own, and as a class, by which the page's style overrules it, for a
//! dark page say. Its letters are the page's and not those that were measured; DejaVu is a wide font, so that most
//! others fit.

use std::fmt::Write;

use crate::colour::Ink;
use crate::lettering::FAMILY;
use crate::mark::{Anchor, Mark, Point, Sheet};

/// The sheet as an SVG file of the page's size, on white.
pub fn file(sheet: &Sheet) -> String {
    let (width, height) = sheet.size;
    let attributes = format!("width=\"{width}\" height=\"{height}\" font-family=\"{FAMILY}\"");
    let ground = "\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    document(sheet, &attributes, ground, Colours::Fixed)
}

/// The sheet as an element. It has no size but a shape, and a text for those who do not see it.
pub fn element(sheet: &Sheet, id: &str, title: &str, description: &str) -> String {
    let [id, title, description] = [id, title, description].map(escaped);
    let attributes = format!("class=\"plot\" role=\"img\" aria-labelledby=\"{id}-title {id}-text\"");
    let texts =
        format!("<title id=\"{id}-title\">{title}</title><desc id=\"{id}-text\">{description}</desc>\n");
    document(sheet, &attributes, &texts, Colours::Themed)
}

/// Text escaped for use between tags or in quotes.
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

/// Who decides on colours.
#[derive(Clone, Copy)]
enum Colours {
    Fixed,
    /// The style of the HTML page, by class.
    Themed,
}

fn document(sheet: &Sheet, attributes: &str, head: &str, colours: Colours) -> String {
    let [width, height] =
        [sheet.size.0, sheet.size.1].map(|pixels| length(f64::from(pixels) / sheet.magnification));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" {attributes} viewBox=\"0 0 {width} {height}\" \
         stroke-linejoin=\"round\">{head}"
    );
    sheet.marks.iter().for_each(|mark| add(&mut out, mark, colours));
    out.push_str("</svg>\n");
    out
}

fn add(out: &mut String, mark: &Mark, colours: Colours) {
    // Writing to a string does not fail.
    let _ = match mark {
        Mark::Line { points, stroke } => {
            let (paint, more) = colours.attributes(stroke.ink, 1.0);
            let dashes = stroke.dashes.map_or(String::new(), |(dash, gap)| {
                format!(" stroke-dasharray=\"{},{}\"", length(dash), length(gap))
            });
            writeln!(
                out,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{paint}\" stroke-width=\"{}\"{dashes}{more}/>",
                places(points),
                length(stroke.width),
            )
        }
        Mark::Area { corners, ink, opacity } => {
            let (paint, more) = colours.attributes(*ink, *opacity);
            writeln!(out, "<polygon points=\"{}\" fill=\"{paint}\"{more}/>", places(corners))
        }
        Mark::Disc { centre: (x, y), radius, ink, opacity } => {
            let [x, y, radius] = [*x, *y, *radius].map(length);
            let (paint, more) = colours.attributes(*ink, *opacity);
            writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" fill=\"{paint}\"{more}/>")
        }
        Mark::Words { words, at, lettering, ink, anchor, upwards } => {
            let [x, y, size] = [at.0, at.1, lettering.size].map(length);
            let (paint, more) = colours.attributes(*ink, 1.0);
            let weight = if lettering.bold { 700 } else { 400 };
            let anchor = match anchor {
                Anchor::Start => "start",
                Anchor::Middle => "middle",
                Anchor::End => "end",
            };
            let turn = if *upwards { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
            let words = escaped(words);
            writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" font-weight=\"{weight}\" text-anchor=\"{anchor}\" \
                 fill=\"{paint}\"{more}{turn}>{words}</text>"
            )
        }
    };
}

impl Colours {
    /// What to fill or stroke with, and the attributes that go with it.
    fn attributes(self, ink: Ink, opacity: f64) -> (String, String) {
        let hex = |Ink(red, green, blue): Ink| format!("#{red:02x}{green:02x}{blue:02x}");
        let translucent = |opacity: f64| {
            if opacity < 1.0 { format!(" opacity=\"{}\"", length(opacity)) } else { String::new() }
        };
        match (self, ink.named()) {
            (Self::Fixed, _) => (hex(ink), translucent(opacity)),
            (Self::Themed, None) => {
                ("currentColor".into(), format!(" color=\"{}\"{}", hex(ink), translucent(opacity)))
            }
            // A dark page thins its inks with its own ground, hence opacity instead of a paler ink.
            (Self::Themed, Some((name, ink, strength))) => {
                let translucent = translucent(opacity * strength);
                ("currentColor".into(), format!(" color=\"{}\" class=\"ink-{name}\"{translucent}", hex(ink)))
            }
        }
    }
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
    use crate::mark::Stroke;

    const BLUE: Ink = Ink(0, 114, 178);

    fn sheet(mark: Mark) -> Sheet {
        Sheet { size: (50, 40), magnification: 1.0, marks: vec![mark] }
    }

    fn drawn(mark: Mark) -> String {
        element(&sheet(mark), "speed", "Speed", "now 5")
    }

    fn line(ink: Ink) -> Mark {
        Mark::stroke((1.0, 2.0), (3.456, 4.0), ink, 2.2)
    }

    #[test]
    fn an_element_has_a_shape_and_a_text_and_no_size() {
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
    fn a_file_has_the_size_of_the_page_and_an_end() {
        let svg = file(&Sheet { size: (1200, 900), magnification: 1.5, marks: Vec::new() });
        let start = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"900\"";
        assert!(svg.starts_with(start), "{svg}");
        assert!(svg.contains("viewBox=\"0 0 800 600\" stroke-linejoin=\"round\""), "{svg}");
        assert!(svg.ends_with("</svg>\n"));
    }

    #[test]
    fn a_line_of_an_element_is_coloured_by_class_and_without_a_style() {
        let solid = "points=\"1,2 3.46,4\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.2\" \
                     color=\"#0072b2\" class=\"ink-blue\"/>";
        assert!(drawn(line(BLUE)).contains(solid), "{}", drawn(line(BLUE)));
        let pale = "color=\"#0072b2\" class=\"ink-blue\" opacity=\"0.4\"/>";
        assert!(drawn(line(BLUE.thinned(PALE))).contains(pale), "{}", drawn(line(BLUE.thinned(PALE))));
        assert!(drawn(line(Ink(1, 2, 3))).contains("color=\"#010203\"/>"));
    }

    #[test]
    fn a_line_of_a_file_has_its_own_colour_and_covers_what_is_below() {
        let line = |ink| file(&sheet(line(ink)));
        assert!(line(BLUE).contains("stroke=\"#0072b2\" stroke-width=\"2.2\"/>"), "{}", line(BLUE));
        let pale = line(BLUE.thinned(PALE));
        assert!(pale.contains("stroke=\"#99c7e0\"") && !pale.contains("opacity"), "{pale}");
        assert!(!pale.contains("class") && !pale.contains("currentColor"), "{pale}");
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
    fn a_line_is_dashed_in_the_rhythm_it_is_given() {
        let stroke = Stroke { ink: BLUE, width: 1.5, dashes: Some((7.0, 4.5)) };
        let svg = file(&sheet(Mark::Line { points: vec![(0.0, 0.0), (9.0, 9.0)], stroke }));
        assert!(svg.contains("stroke-dasharray=\"7,4.5\""), "{svg}");
        assert!(!file(&sheet(line(BLUE))).contains("dash"));
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_markup() {
        assert_eq!(escaped("a \"b\" <c> & d\u{0}e é −1"), "a &quot;b&quot; &lt;c&gt; &amp; d e é −1");
        let mark = Mark::words(
            "<script>alert(\"a & b\")</script>",
            (0.0, 0.0),
            (Lettering::SMALL, BLUE),
            Anchor::Start,
        );
        let escaped = ">&lt;script&gt;alert(&quot;a &amp; b&quot;)&lt;/script&gt;</text>";
        for svg in [file(&sheet(mark.clone())), drawn(mark)] {
            assert!(svg.contains(escaped) && !svg.contains("<script"), "{svg}");
        }
    }
}
