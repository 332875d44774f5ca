//! Lists of implementations that people choose from by name.
//!
//! Strategies are listed in this crate, algorithms and networks in the settings. A list is a constant, an entry is data, and
//! a [`Choice`] is a reference to an entry that is written and read as the entry's name. Nothing matches on names: code asks
//! the entry.

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
        T::list().iter().copied().find(|entry| entry.name() == given).ok_or_else(|| UnknownName {
            what: T::KIND,
            given: given.to_owned(),
            accepted: T::list().iter().map(|entry| entry.name()).collect(),
        })
    }
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
