//! Lists of implementations that people choose from by name.
//!
//! Strategies are listed in this crate, algorithms and networks in the settings. A list is a constant, an entry is data, and
//! a [`Choice`] is a reference to an entry that is written and read as the entry's name. Nothing matches on names: code asks
//! the entry. Where a name is all that an alternative has, an enum does, and [`names!`](crate::names) gives it its names.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::ops::Deref;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An entry of a list that people choose from.
pub trait Listed: 'static {
    /// What an entry is, for errors: "strategy".
    const KIND: &'static str;

    /// Every entry, in the order in which help shows them.
    fn list() -> &'static [Choice<Self>];

    /// The name in settings, files and messages: lower case with dashes.
    fn name(&self) -> &'static str;

    /// A few words for help.
    fn about(&self) -> &'static str;
}

/// One entry of a list. Two choices are equal if they have the same name.
pub struct Choice<T: ?Sized + 'static>(&'static T);

impl<T: ?Sized> Choice<T> {
    /// The choice of this entry.
    pub const fn of(entry: &'static T) -> Self {
        Self(entry)
    }
}

/// A name that is in no list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {given:?}, use one of: {}", accepted.join(", "))]
pub struct UnknownName {
    /// What was to be named.
    pub what: &'static str,
    /// The name as given.
    pub given: String,
    /// The names there are.
    pub accepted: Vec<&'static str>,
}

impl<T: Listed + ?Sized> FromStr for Choice<T> {
    type Err = UnknownName;

    fn from_str(given: &str) -> Result<Self, UnknownName> {
        find(T::KIND, T::list(), |entry| entry.0.name(), given)
    }
}

/// The value with this name. The error lists the names of all values.
pub fn find<T: Copy>(
    what: &'static str,
    all: &[T],
    name: impl Fn(T) -> &'static str,
    given: &str,
) -> Result<T, UnknownName> {
    all.iter().copied().find(|&value| name(value) == given).ok_or_else(|| UnknownName {
        what,
        given: given.to_owned(),
        accepted: all.iter().map(|&value| name(value)).collect(),
    })
}

/// Names the variants of an enum: implements `ALL`, `name`, `Display` and `FromStr`.
///
/// The kind is for errors, as [`Listed::KIND`] is. Names are the enum's own: where serde writes it, `rename_all` or
/// `rename` must agree with them.
///
/// ```
/// #[derive(Clone, Copy, Debug, PartialEq)]
/// enum Order {
///     Oldest,
///     Newest,
/// }
///
/// value::names!(Order, "order", Oldest = "oldest", Newest = "newest");
///
/// assert_eq!(Order::ALL.map(Order::name), ["oldest", "newest"]);
/// assert_eq!("newest".parse(), Ok(Order::Newest));
/// let error = "best".parse::<Order>().unwrap_err().to_string();
/// assert_eq!(error, "unknown order \"best\", use one of: oldest, newest");
/// ```
#[macro_export]
macro_rules! names {
    ($type:ident, $kind:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every value, in the order in which errors list them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// The name in settings, files and messages.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::registry::UnknownName;

            fn from_str(given: &str) -> Result<Self, Self::Err> {
                $crate::registry::find($kind, &Self::ALL, Self::name, given)
            }
        }
    };
}

/// Implements [`Listed`] for entries with the fields `name` and `about`, given the kind and the list.
#[macro_export]
macro_rules! listed {
    ($entry:ty, $kind:literal, $list:expr) => {
        impl $crate::Listed for $entry {
            const KIND: &'static str = $kind;

            fn list() -> &'static [$crate::Choice<Self>] {
                $list
            }

            fn name(&self) -> &'static str {
                self.name
            }

            fn about(&self) -> &'static str {
                self.about
            }
        }
    };
}

impl<T: ?Sized> Clone for Choice<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Choice<T> {}

impl<T: ?Sized> Deref for Choice<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Listed + ?Sized> PartialEq for Choice<T> {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl<T: Listed + ?Sized> Eq for Choice<T> {}

impl<T: Listed + ?Sized> Hash for Choice<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl<T: Listed + ?Sized> fmt::Display for Choice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl<T: Listed + ?Sized> fmt::Debug for Choice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl<T: Listed + ?Sized> Serialize for Choice<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de, T: Listed + ?Sized> Deserialize<'de> for Choice<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name<T: ?Sized>(PhantomData<T>);

        impl<T: Listed + ?Sized> Visitor<'_> for Name<T> {
            type Value = Choice<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "the name of a {}", T::KIND)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Choice<T>, E> {
                name.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Name(PhantomData))
    }
}
