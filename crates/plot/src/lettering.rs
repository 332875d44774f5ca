//! Letters of the picture: which font, how large, and how wide.

use read_fonts::tables::cmap::Cmap;
use read_fonts::tables::hmtx::Hmtx;
use read_fonts::{FontRef, ReadError, TableProvider};

/// What an SVG viewer is asked for: the font that is measured here, or one as wide.
pub const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// How high capital letters are, as a multiple of the size.
const CAPITALS: f64 = 0.73;

/// A size on the page, and whether bold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lettering {
    pub size: f64,
    pub bold: bool,
}

impl Lettering {
    /// Above the page.
    pub const TITLE: Self = Self { size: 20.0, bold: true };
    /// Below the title.
    pub const SUBTITLE: Self = Self { size: 13.5, bold: false };
    /// Above a panel.
    pub const HEADING: Self = Self { size: 13.5, bold: true };
    /// Names of axes.
    pub const AXIS: Self = Self { size: 14.5, bold: false };
    /// Numbers on axes, names in the legend, words in a panel.
    pub const SMALL: Self = Self { size: 13.5, bold: false };

    /// How far below their middle the baseline of numbers and capital letters is.
    pub fn below_middle(self) -> f64 {
        self.size * CAPITALS / 2.0
    }
}

pub struct Fonts {
    regular: Font,
    bold: Font,
}

impl Fonts {
    pub fn new() -> Result<Self, ReadError> {
        Ok(Self { regular: Font::new(dejavu::sans::regular())?, bold: Font::new(dejavu::sans::bold())? })
    }

    /// How wide words are on the page, or a little more: some pairs of letters, `AV` say, are drawn closer together.
    pub fn width(&self, words: &str, lettering: Lettering) -> f64 {
        let font = if lettering.bold { &self.bold } else { &self.regular };
        lettering.size * words.chars().map(|letter| font.advance(letter)).sum::<f64>() / font.units_per_em
    }

    /// Words in as many lines as they need to be no wider than that; a single word may still be.
    pub fn wrapped(&self, words: &str, lettering: Lettering, width: f64) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for word in words.split_whitespace() {
            let longer = lines.last().map(|line| format!("{line} {word}"));
            match (longer, lines.last_mut()) {
                (Some(longer), Some(last)) if self.width(&longer, lettering) <= width => *last = longer,
                _ => lines.push(word.to_owned()),
            }
        }
        lines
    }

    /// The words smaller, and if that is not enough without their end, so that they are no wider than that.
    pub fn fitted(&self, words: &str, lettering: Lettering, width: f64) -> (String, Lettering) {
        const SIZE_MIN: f64 = 10.0;
        let wide = self.width(words, lettering);
        if wide <= width {
            return (words.to_owned(), lettering);
        }
        // A little less, since the last bit of a width depends on the size.
        let size = (0.999 * lettering.size * width / wide).max(SIZE_MIN);
        let lettering = Lettering { size, ..lettering };
        let mut shorter = words.to_owned();
        while self.width(&shorter, lettering) > width && shorter.chars().count() > 2 {
            shorter = shorter.chars().take(shorter.chars().count() - 2).chain(['…']).collect();
        }
        (shorter, lettering)
    }
}

/// How wide each letter of a font is.
struct Font {
    letters: Cmap<'static>,
    widths: Hmtx<'static>,
    units_per_em: f64,
}

impl Font {
    fn new(bytes: &'static [u8]) -> Result<Self, ReadError> {
        let font = FontRef::new(bytes)?;
        let units_per_em = f64::from(font.head()?.units_per_em());
        Ok(Self { letters: font.cmap()?, widths: font.hmtx()?, units_per_em })
    }

    /// In units of the font. A letter that it does not have is drawn as a box, which is its first glyph.
    fn advance(&self, letter: char) -> f64 {
        let glyph = self.letters.map_codepoint(letter).unwrap_or_default();
        self.widths.advance(glyph).map_or(0.0, f64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_as_wide_as_the_font_says() {
        let fonts = Fonts::new().unwrap();
        // A digit of DejaVu Sans is 1303 units of 2048 wide.
        let wide = fonts.width("0123456789", Lettering::SMALL);
        assert!((wide - 13.5 * 13030.0 / 2048.0).abs() < 0.5, "{wide}");
        assert!(fonts.width("MM", Lettering::HEADING) > fonts.width("MM", Lettering::SMALL));
        assert_eq!(fonts.width("", Lettering::SMALL), 0.0);
    }

    #[test]
    fn long_lines_are_wrapped_between_words() {
        let fonts = Fonts::new().unwrap();
        let words = "a line that is too long for the page it stands on";
        let lines = fonts.wrapped(words, Lettering::SMALL, 120.0);
        assert!(lines.len() > 1 && lines.iter().all(|line| fonts.width(line, Lettering::SMALL) <= 120.0));
        assert_eq!(lines.join(" "), words);
        assert!(fonts.wrapped("", Lettering::SMALL, 120.0).is_empty());
    }

    #[test]
    fn long_words_are_made_smaller_and_cut_if_that_is_not_enough() {
        let fonts = Fonts::new().unwrap();
        let label = "95% of |metric| / upper bound";
        let (words, lettering) =
            fonts.fitted(label, Lettering::AXIS, 0.9 * fonts.width(label, Lettering::AXIS));
        assert!(words == label && lettering.size < Lettering::AXIS.size);
        let (words, lettering) = fonts.fitted("short", Lettering::AXIS, 100.0);
        assert_eq!((words.as_str(), lettering), ("short", Lettering::AXIS));
        for width in [5.0, 60.0, 110.0] {
            let (words, lettering) = fonts.fitted("transitions per second", Lettering::AXIS, width);
            assert!(fonts.width(&words, lettering) <= width || words.chars().count() <= 2, "{words}");
        }
    }
}
