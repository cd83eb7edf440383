//! Values that are one of a few words.

/// A word of the file for each variant.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* } $wanted:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// Reads the word.
            ///
            /// # Errors
            ///
            /// [`Rule::NotOneOf`](crate::Rule::NotOneOf).
            pub fn parse(text: &str) -> Result<Self, $crate::Rule> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err($crate::Rule::NotOneOf {
                        got: text.to_owned(),
                        wanted: $wanted,
                    }),
                }
            }

            /// The word.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

pub(crate) use words;
