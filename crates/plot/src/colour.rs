//! A palette that is distinguishable with colour blindness.

/// Okabe and Ito's palette without its yellow, which is lost on white, and a grey for what is not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Blue.
    Blue,
    /// The palette's vermilion, its stronger orange.
    Orange,
    /// Bluish green.
    Green,
    /// Reddish purple.
    Pink,
    /// The palette's light orange.
    Amber,
    /// Light blue.
    Sky,
    /// Black.
    Black,
    /// For baselines, bounds and other references.
    Grey,
}

impl Colour {
    /// Those for data, in an order that keeps neighbours apart.
    pub const DATA: [Colour; 7] = [
        Colour::Blue,
        Colour::Orange,
        Colour::Green,
        Colour::Pink,
        Colour::Amber,
        Colour::Sky,
        Colour::Black,
    ];

    /// What is put on the page.
    pub(crate) const fn ink(self) -> Ink {
        match self {
            Colour::Blue => Ink(0, 114, 178),
            Colour::Orange => Ink(213, 94, 0),
            Colour::Green => Ink(0, 158, 115),
            Colour::Pink => Ink(204, 121, 167),
            Colour::Amber => Ink(230, 159, 0),
            Colour::Sky => Ink(86, 180, 233),
            Colour::Black => Ink(0, 0, 0),
            Colour::Grey => Ink::QUIET,
        }
    }
}

/// How strong the ink of a thin line is.
pub const PALE: f64 = 0.4;

/// Red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ink(pub u8, pub u8, pub u8);

/// Inks by the names that a style sheet knows them by.
const NAMED: [(&str, Ink); 11] = [
    ("blue", Colour::Blue.ink()),
    ("orange", Colour::Orange.ink()),
    ("green", Colour::Green.ink()),
    ("pink", Colour::Pink.ink()),
    ("amber", Colour::Amber.ink()),
    ("sky", Colour::Sky.ink()),
    ("black", Colour::Black.ink()),
    ("dark", Ink::DARK),
    ("quiet", Ink::QUIET),
    ("axis", Ink::AXIS),
    ("grid", Ink::GRID),
];

impl Ink {
    /// Titles and the names of axes.
    pub const DARK: Self = Self(34, 34, 34);
    /// All other words, and references.
    pub const QUIET: Self = Self(96, 96, 96);
    /// Axes and their ticks.
    pub const AXIS: Self = Self(140, 140, 140);
    /// Lines across the panel.
    pub const GRID: Self = Self(224, 224, 224);

    /// The ink thinned with the white of the page: 1 is all of it, 0 is white.
    ///
    /// Lines are thinned in this way and not made translucent, since a translucent line shows where its pieces join.
    pub fn thinned(self, strength: f64) -> Self {
        let thin = |part: u8| (255.0 - (255.0 - f64::from(part)) * strength.clamp(0.0, 1.0)).round() as u8;
        Self(thin(self.0), thin(self.1), thin(self.2))
    }

    /// The ink's name, the ink of that name, and how strong it is. Inks of other strengths have no name.
    pub fn named(self) -> Option<(&'static str, Self, f64)> {
        let pure = NAMED.iter().map(|(name, ink)| (*name, *ink, 1.0));
        let pale = NAMED.iter().map(|(name, ink)| (*name, *ink, PALE));
        pure.chain(pale).find(|(_, ink, strength)| ink.thinned(*strength) == self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_colours_are_the_same_and_all_are_seen_on_white() {
        for (index, one) in Colour::DATA.into_iter().enumerate() {
            assert!(Colour::DATA[..index].iter().all(|other| other.ink() != one.ink()));
            let Ink(red, green, blue) = one.ink();
            assert!(u32::from(red) + u32::from(green) + u32::from(blue) < 520, "{one:?}");
        }
    }

    #[test]
    fn every_ink_of_a_curve_has_a_name_of_its_own() {
        let named = |ink: Ink| ink.named().unwrap();
        for (index, colour) in Colour::DATA.into_iter().enumerate() {
            let (name, ink, strength) = named(colour.ink());
            assert_eq!((ink, strength), (colour.ink(), 1.0));
            assert_eq!(named(colour.ink().thinned(PALE)), (name, ink, PALE), "{colour:?}");
            assert!(Colour::DATA[..index].iter().all(|other| named(other.ink()).0 != name), "{colour:?}");
        }
        for ink in [Ink::DARK, Ink::QUIET, Ink::AXIS, Ink::GRID] {
            assert_eq!((named(ink).1, named(ink).2), (ink, 1.0));
        }
        assert_eq!(Ink(1, 2, 3).named(), None);
    }

    #[test]
    fn ink_is_thinned_towards_white() {
        assert_eq!(Ink(0, 100, 200).thinned(1.0), Ink(0, 100, 200));
        assert_eq!(Ink(0, 100, 200).thinned(0.0), Ink(255, 255, 255));
        assert_eq!(Ink(55, 155, 255).thinned(0.5), Ink(155, 205, 255));
    }
}
