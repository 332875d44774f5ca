//! How a setting's value is read from text and shown as text.
//!
//! A flag, an environment variable and a TOML value all pass through the same few lines, so
//! `--frames 40M`, `QUIVER_FRAMES=40M` and `frames = "40M"` cannot differ.

use value::registry::{Choice, Listed, UnknownName};

/// A type whose values people can write in a flag, a variable or a file.
pub trait Text: Sized {
    /// Whether the type is true or false, so that a bare flag can mean true.
    const IS_SWITCH: bool = false;
    /// Reads a value; the error says what would have been accepted.
    fn read(text: &str) -> Result<Self, String>;
    /// Shows a value so that [`Text::read`] gives it back.
    fn show(&self) -> String;
    /// The values as (name, about), if they come from a list; help shows them.
    fn choices() -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }
}

macro_rules! text_by_parse {
    ($($type:ty: $what:literal),* $(,)?) => {$(
        impl Text for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.trim().replace('_', "").parse().map_err(|_| format!("expected {}, got '{text}'", $what))
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

text_by_parse! {
    u32: "a whole number",
    u64: "a whole number",
    usize: "a whole number",
    f64: "a number",
}

impl Text for bool {
    const IS_SWITCH: bool = true;
    fn read(text: &str) -> Result<Self, String> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(format!("expected true or false, got '{text}'")),
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! text_by_from_str {
    ($($type:ty),* $(,)?) => {$(
        impl Text for $type {
            fn read(text: &str) -> Result<Self, String> {
                text.trim().parse().map_err(|error: <$type as std::str::FromStr>::Err| error.to_string())
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
pub(crate) use text_by_from_str;

text_by_from_str!(value::Rho, envs::ActionSet, replay::codec::Codec,);

impl<T: Listed> Text for Choice<T> {
    fn read(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|error: UnknownName| error.to_string())
    }
    fn show(&self) -> String {
        self.to_string()
    }
    fn choices() -> Vec<(&'static str, &'static str)> {
        T::list().iter().map(|entry| (entry.name(), entry.about())).collect()
    }
}
