//! Enums whose variants have a text.

/// Defines an enum with `ALL` and `Display`. The text of a variant is the last line of its documentation.
macro_rules! named_enum {
    ($(#[$attribute:meta])* pub enum $enum:ident { $($(#[$doc:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum $enum { $($(#[$doc])* #[doc = $text] $name),* }

        impl $enum {
            /// All variants.
            pub const ALL: &[$enum] = &[$($enum::$name),*];
        }

        impl ::std::fmt::Display for $enum {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(match self { $($enum::$name => $text),* })
            }
        }
    };
}

pub(crate) use named_enum;
