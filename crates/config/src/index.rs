//! Positions in the lists of a model, which refer to each other by them.

/// Gives a list of the model an index type of its own, so that no index reaches another list.
macro_rules! index {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub(crate) usize);

        impl $name {
            /// Position in the list of the model, counted from zero.
            pub const fn position(self) -> usize {
                self.0
            }
        }
    };
}

index! {
    /// Names a [`Unit`](crate::Unit) of one model.
    UnitIndex
}
index! {
    /// Names a [`NamedStore`](crate::NamedStore) of one model.
    StoreIndex
}
index! {
    /// Names a [`User`](crate::User) of one model.
    UserIndex
}
index! {
    /// Names a [`Group`](crate::Group) of one model.
    GroupIndex
}
index! {
    /// Names a [`Target`](crate::Target) of one model.
    TargetIndex
}
index! {
    /// Names an [`NbdServer`](crate::NbdServer) of one model.
    NbdIndex
}
index! {
    /// Names a [`HyperScsiGroup`](crate::HyperScsiGroup) of one model.
    HyperScsiIndex
}
index! {
    /// Names a [`Quota`](crate::Quota) of one model.
    QuotaIndex
}
index! {
    /// Names a [`Notify`](crate::Notify) of one model.
    NotifyIndex
}
