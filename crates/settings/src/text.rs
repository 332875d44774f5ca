//! Parses and formats values of settings.
//!
//! Flags, environment variables and TOML values use the same code, so `--frames 40M`, `QUIVER_FRAMES=40M` and
//! `frames = "40M"` have the same meaning.

use value::registry::{Choice, Listed, UnknownName};

/// A type of setting, with a text form.
pub trait Text: Sized {
    /// Whether the type is a boolean, so that a flag without a value means true.
    const IS_SWITCH: bool = false;
    /// Parses a value. The error names what is accepted.
    fn read(text: &str) -> Result<Self, String>;
    /// Formats a value so that [`Text::read`] parses it back.
    fn show(&self) -> String;
    /// The values as (name, about), if they come from a list; the help shows them.
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

text_by_from_str!(value::Rho, envs::ActionSet, envs::FrameMaximum, replay::codec::Codec,);

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
