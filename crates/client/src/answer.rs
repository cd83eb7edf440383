//! What came back: the value, and the JSON it was made of.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Raw;

/// A success.
#[derive(Clone, Debug)]
pub struct Answer<T> {
    /// What the answer says.
    pub value: T,
    /// The same as it came, with fields that this program does not know; null when the answer had no
    /// body.
    pub json: Value,
    /// The revision that the answer belongs to, from its ETag.
    pub revision: Option<u64>,
    /// The request made a thing that was not there.
    pub is_new: bool,
}

impl<T: DeserializeOwned> Answer<T> {
    /// `None` for a body that is not the JSON of a `T`.
    pub(crate) fn read(raw: &Raw) -> Option<Self> {
        let json = if raw.body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&raw.body).ok()?
        };
        Some(Self {
            value: T::deserialize(&json).ok()?,
            json,
            revision: raw.revision,
            is_new: raw.status == 201,
        })
    }
}
