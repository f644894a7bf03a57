//! Reads and writes the attributes of rows: strict about what the wire format requires, tolerant about everything else.
//!
//! Each row type is defined once, with its attributes, by [`row!`] or [`attributes!`]. Reading, writing and
//! [`Row::visit`], from which an update of `META` is derived, all come from that list.

use std::collections::BTreeSet;

use tabletheory::{Attr, Item, Number, Set, Value};

use crate::error::{Error, Result};

/// A struct whose fields are attributes of a row.
pub(crate) trait Row: Sized {
    fn read(row: &Reader<'_>) -> Result<Self>;

    /// Calls `visit` with the name of every attribute that the row can have, and its value if it has one.
    fn visit(&self, visit: &mut dyn FnMut(&str, Option<Value>));

    /// The attributes that the row has. An absent optional is an absent attribute, never NULL or "".
    fn to_attributes(&self) -> Item {
        let mut item = Item::new();
        self.visit(&mut |name, value| {
            if let Some(value) = value {
                item.set(name, value);
            }
        });
        item
    }
}

/// Defines a struct and implements [`Row`] for it: `pub field: Type = ATTRIBUTE`, optionally `=> correct`, a function from
/// the value that was read to the one that is used; and first `..field: Type` for a field that is itself a [`Row`].
macro_rules! attributes {
    ($(#[$meta:meta])* pub struct $type:ident {
        $(..$nested:ident: $nested_type:ty,)?
        $($(#[$doc:meta])* pub $field:ident: $field_type:ty = $attribute:ident $(=> $correct:expr)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $type {
            $(#[doc = concat!("The attributes of a [`", stringify!($nested_type), "`].")] pub $nested: $nested_type,)?
            $($(#[$doc])* pub $field: $field_type,)*
        }

        impl $crate::protocol::row::codec::Row for $type {
            fn read(row: &$crate::protocol::row::codec::Reader<'_>) -> $crate::error::Result<Self> {
                Ok($type {
                    $($nested: $crate::protocol::row::codec::Row::read(row)?,)?
                    $($field: {
                        let value = row.field(&$crate::protocol::attribute::$attribute)?;
                        $(let value = $correct(value);)?
                        value
                    },)*
                })
            }

            fn visit(&self, visit: &mut dyn FnMut(&str, Option<tabletheory::Value>)) {
                $(self.$nested.visit(visit);)?
                $(visit(
                    $crate::protocol::attribute::$attribute.name(),
                    $crate::protocol::row::codec::Field::to_value(&self.$field),
                );)*
            }
        }
    };
}

/// Defines the struct of a whole row with [`attributes!`], with a public `read` and `to_item`.
macro_rules! row {
    ($role:literal $(#[$meta:meta])* pub struct $type:ident { $($fields:tt)* }) => {
        $crate::protocol::row::codec::attributes!($(#[$meta])* pub struct $type { $($fields)* });

        impl $type {
            #[doc = concat!("Reads a `", $role, "` row.")]
            ///
            /// A required attribute that is missing or mistyped is [`Kind::Corrupt`](crate::Kind::Corrupt). An optional
            /// one that is mistyped counts as absent.
            pub fn read(item: &tabletheory::Item) -> $crate::error::Result<Self> {
                $crate::protocol::row::codec::Row::read(&$crate::protocol::row::codec::Reader { role: $role, item })
            }

            /// The attributes of the row, without its key.
            #[must_use]
            pub fn to_item(&self) -> tabletheory::Item {
                $crate::protocol::row::codec::Row::to_attributes(self)
            }
        }
    };
}

pub(crate) use {attributes, row};

/// A value of one attribute.
pub(crate) trait Field: Sized {
    /// Reads the value; `None` if the attribute is absent.
    fn read(place: Place<'_>, value: Option<&Value>) -> Result<Self>;

    /// The value to write; `None` leaves the attribute out.
    fn to_value(&self) -> Option<Value>;
}

/// The attributes of one row.
pub(crate) struct Reader<'a> {
    /// The role of the row, which error messages name.
    pub(crate) role: &'static str,
    pub(crate) item: &'a Item,
}

impl Reader<'_> {
    pub(crate) fn field<T, F: Field>(&self, attribute: &Attr<T>) -> Result<F> {
        let name = attribute.name();
        F::read(Place { role: self.role, name }, self.item.get(name))
    }
}

/// Which attribute of which row an error message is about.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) role: &'static str,
    name: &'a str,
}

impl Place<'_> {
    fn required<R>(self, value: Option<&Value>, ty: &str, read: impl Fn(&Value) -> Option<R>) -> Result<R> {
        let error =
            |problem: String| Error::corrupt(format!("{}: attribute `{}` {problem}", self.role, self.name));
        let value = value.ok_or_else(|| error("is missing".to_owned()))?;
        read(value).ok_or_else(|| error(format!("is of type {}; it must be {ty}", value.type_name())))
    }
}

impl Field for String {
    fn read(place: Place<'_>, value: Option<&Value>) -> Result<Self> {
        place.required(value, "S", |value| value.as_str().map(str::to_owned))
    }

    fn to_value(&self) -> Option<Value> {
        Some(self.as_str().into())
    }
}

/// Some texts: one is written as a string, several as a set.
impl Field for BTreeSet<String> {
    fn read(place: Place<'_>, value: Option<&Value>) -> Result<Self> {
        place.required(value, "S or SS", |value| match value {
            Value::S(text) => Some(BTreeSet::from([text.clone()])),
            Value::Ss(texts) => Some(texts.members().iter().cloned().collect()),
            _ => None,
        })
    }

    fn to_value(&self) -> Option<Value> {
        match self.first() {
            Some(text) if self.len() == 1 => Some(text.as_str().into()),
            _ => Set::new(self.clone()).ok().map(Value::from),
        }
    }
}

/// Whole seconds. A fraction, as JavaScript sometimes writes it, is cut off.
impl Field for i64 {
    fn read(place: Place<'_>, value: Option<&Value>) -> Result<Self> {
        place.required(value, "N", |value| value.as_number().map(Number::whole))
    }

    fn to_value(&self) -> Option<Value> {
        Some((*self).into())
    }
}

/// Implements [`Field`] for an optional value, which is absent if it is mistyped.
macro_rules! optional_field {
    ($($type:ty: $read:expr, $write:expr;)*) => {$(
        impl Field for $type {
            fn read(_: Place<'_>, value: Option<&Value>) -> Result<Self> {
                Ok(value.map($read).unwrap_or_default())
            }

            fn to_value(&self) -> Option<Value> {
                $write(self)
            }
        }
    )*};
}

fn optional_whole(value: &Value) -> Option<i64> {
    value.as_number().map(Number::whole)
}

optional_field! {
    Option<String>:
        |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned),
        |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Value::from);
    Option<i64>: optional_whole, |number: &Option<i64>| number.map(Value::from);
    Option<u64>:
        |value| optional_whole(value).and_then(|number| u64::try_from(number).ok()),
        |number: &Option<u64>| number.map(Value::from);
    // An HTTP status.
    Option<u16>:
        |value| optional_whole(value).and_then(|number| u16::try_from(number).ok()).filter(|status| STATUSES.contains(status)),
        |status: &Option<u16>| status.map(Value::from);
    bool: |value| *value == Value::Bool(true), |flag: &bool| flag.then_some(Value::Bool(true));
    // A set of strings.
    Vec<String>:
        |value| if let Value::Ss(members) = value { members.members().to_vec() } else { Vec::new() },
        |members: &Vec<String>| {
            let sorted: BTreeSet<String> = members.iter().cloned().collect();
            Set::new(sorted).ok().map(Value::from)
        };
    // A list of pairs, since one header may occur several times and the order matters.
    Vec<(String, String)>: read_pairs, |pairs: &Vec<(String, String)>| {
        let pair = |(name, value): &(String, String)| Value::L(vec![name.as_str().into(), value.as_str().into()]);
        (!pairs.is_empty()).then(|| Value::L(pairs.iter().map(pair).collect()))
    };
}

fn read_pairs(value: &Value) -> Vec<(String, String)> {
    let Value::L(pairs) = value else { return Vec::new() };
    let pair = |pair: &Value| {
        let Value::L(parts) = pair else { return None };
        let [Value::S(name), Value::S(value)] = parts.as_slice() else { return None };
        Some((name.clone(), value.clone()))
    };
    pairs.iter().filter_map(pair).collect()
}

/// The valid HTTP statuses. Any other number in a row or an object counts as absent.
pub(crate) const STATUSES: std::ops::RangeInclusive<u16> = 100..=599;
