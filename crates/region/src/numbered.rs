//! Enums whose values stand as numbers in shared memory or in messages: [`numbered!`].

/// Defines an enum whose values have numbers, and `numbered`, which finds the value of a number
/// that another party wrote. So each number is written once.
///
/// ```
/// ginnel_region::numbered! {
///     /// What a lamp shows.
///     pub enum Lamp: u8 {
///         /// Wait.
///         Red = 1,
///         /// Go.
///         Green = 3,
///     }
/// }
/// assert_eq!(Lamp::Green as u8, 3);
/// assert_eq!(Lamp::numbered(3), Some(Lamp::Green));
/// assert_eq!(Lamp::numbered(2), None);
/// ```
#[macro_export]
macro_rules! numbered {
    (
        $(#[$about:meta])*
        $shown:vis enum $name:ident: $number:ident {
            $($(#[$doc:meta])* $value:ident = $at:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr($number)]
        $shown enum $name {
            $($(#[$doc])* $value = $at,)*
        }

        impl $name {
            /// The value that has this number; `None` where none has.
            #[inline]
            #[must_use]
            $shown const fn numbered(number: $number) -> Option<Self> {
                match number {
                    $($at => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}
