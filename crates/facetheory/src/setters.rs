//! Methods that set one field.

/// Defines methods that set the field after which their parameter is named.
macro_rules! setters {
    ($($(#[$doc:meta])* $vis:vis fn $method:ident($field:ident: $type:ty);)*) => {$(
        $(#[$doc])*
        #[must_use]
        $vis fn $method(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}
