//! How objects, and what stands for holding them, are shown by `{:?}`: by their names and measures.
//! Nothing is read from the segment for that, so it can be done at any time.

/// Implements `Debug` for each type as `Type { name: "…", … }`.
macro_rules! shown {
    ($($type:ty as $shown:literal: |$own:ident| { $($field:ident: $value:expr),* };)*) => {$(
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $own = self;
                f.debug_struct($shown)
                    $(.field(stringify!($field), &$value))*
                    .finish_non_exhaustive()
            }
        }
    )*};
}
