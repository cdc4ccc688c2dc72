//! Rust configurations and the C structures that they fill.

/// A C structure that carries its own `size` (and mostly `magic`) for versioning.
pub trait VersionedStruct: Copy {
    /// Size of the first published version; nothing smaller is accepted.
    const V1_SIZE: usize;

    /// The structure with `size`, `magic` and `version` written and every other byte zero, which
    /// is the libraries' default.
    fn init() -> Self;
}

/// Implements [`VersionedStruct`] for C structures: the size of each one's first version, and the
/// fields that start as something else than zero. `size` is written for all.
#[macro_export]
macro_rules! versioned_structs {
    ($($ty:ident from $v1:expr, $($field:ident: $value:expr),+;)+) => {$(
        impl $crate::binding::VersionedStruct for $ty {
            const V1_SIZE: usize = $v1 as usize;

            // Structures with padding have no literal of all fields.
            #[allow(clippy::field_reassign_with_default)]
            fn init() -> Self {
                let mut raw = Self::default();
                // A C `unsigned int` or `size_t`: no structure is larger than either holds.
                raw.size = size_of::<Self>() as _;
                $(raw.$field = $value;)+
                raw
            }
        }
    )+};
}

/// A public configuration that fills a C structure.
///
/// Only the binding writes `size`, `magic` and `version`; users never see them. Made with
/// [`binding_struct!`](crate::binding_struct).
pub trait BindingStruct: Default {
    /// The C structure.
    type Raw: VersionedStruct;

    /// The C structure with every field of this configuration.
    fn to_raw(&self) -> Self::Raw;
}

/// Declares a configuration together with the C structure that it fills.
///
/// Each field names its type, its default and the C field it goes to; the value is converted with
/// `Into`. Fields without `=> name` stay on the Rust side. The macro makes the struct
/// `#[non_exhaustive]`, with `Default`, serde (under the using crate's `serde` feature) and one
/// chaining setter a field.
#[macro_export]
macro_rules! binding_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident => $raw:ty {
            $($(#[$field_meta:meta])* pub $field:ident: $ty:ty = $default:expr $(=> $c:ident)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl $name {
            /// The defaults.
            #[must_use]
            pub fn new() -> Self {
                Self::default()
            }

            $($(#[$field_meta])*
            #[must_use]
            pub fn $field(mut self, value: $ty) -> Self {
                self.$field = value;
                self
            })*
        }

        impl $crate::binding::BindingStruct for $name {
            type Raw = $raw;

            fn to_raw(&self) -> $raw {
                #[allow(unused_mut)]
                let mut raw = <$raw as $crate::binding::VersionedStruct>::init();
                $($(raw.$c = self.$field.into();)?)*
                raw
            }
        }
    };
}
