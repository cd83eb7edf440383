//! Single keys of a thing, as an edit sets them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// A thing whose keys are set one by one.
pub trait Patched: DeserializeOwned + Default + Serialize + ToSchema {
    /// What the schema calls its keys.
    const SCHEMA: &'static str;
    /// The keys of an edit that say which thing is meant, with their meaning.
    const NAMED_BY: &'static [(&'static str, &'static str)];
    /// Keys of the thing that an edit does not set, because it is known by them.
    const IDENTITY: &'static [&'static str];
}

/// Keys of a thing to set; all others stay. An empty text, list or table, and the number 0, remove the key from the
/// document; `null` counts as not given.
///
/// On the wire one object, with what names the thing beside its keys.
pub struct Patch<T> {
    /// As many as [`Patched::NAMED_BY`] has.
    names: Vec<String>,
    keys: Map<String, Value>,
    of: PhantomData<fn() -> T>,
}

impl<T: Patched> Patch<T> {
    /// Of the thing that has these names; nothing is set yet.
    pub fn of<const COUNT: usize>(names: [&str; COUNT]) -> Self {
        debug_assert_eq!(COUNT, T::NAMED_BY.len(), "the names of {}", T::SCHEMA);
        Self {
            names: names.map(str::to_owned).to_vec(),
            keys: Map::new(),
            of: PhantomData,
        }
    }

    /// Keys of a thing that has no name yet.
    pub fn nameless(keys: Map<String, Value>) -> Self {
        Self {
            names: Vec::new(),
            keys,
            of: PhantomData,
        }
    }

    /// The same, with this key.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys.insert(key.to_owned(), value.into());
        debug_assert!(self.check().is_ok(), "{key} of {}", T::SCHEMA);
        self
    }

    /// The same, with this key if there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    /// Whether no key is set.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// What names the thing, by the position in [`Patched::NAMED_BY`].
    pub fn name(&self, position: usize) -> &str {
        self.names.get(position).map_or("", String::as_str)
    }

    /// A value that is set.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key)
    }

    /// The thing, with these keys.
    ///
    /// # Errors
    ///
    /// A value does not fit its key.
    pub fn applied(&self, thing: &T) -> Result<T, serde_json::Error> {
        let blank = serde_json::to_value(T::default())?;
        let mut all = serde_json::to_value(thing)?;
        if let Value::Object(all) = &mut all {
            for (key, value) in &self.keys {
                match (removes(value), blank.get(key)) {
                    (false, _) => all.insert(key.clone(), value.clone()),
                    (true, Some(none)) => all.insert(key.clone(), none.clone()),
                    (true, None) => all.remove(key),
                };
            }
        }
        serde_json::from_value(all)
    }

    /// Whether there are such keys, and their values fit.
    fn check(&self) -> Result<(), serde_json::Error> {
        let is_name = |key: &&&str| self.keys.contains_key(**key);
        if let Some(key) = T::IDENTITY.iter().find(is_name) {
            let why = format!("an edit cannot set `{key}`, by which the thing is known");
            return Err(serde_json::Error::custom(why));
        }
        let mut all = serde_json::to_value(T::default())?;
        if let Value::Object(all) = &mut all {
            all.extend(self.keys.clone());
        }
        serde_json::from_value::<T>(all).map(drop)
    }
}

/// Whether a value removes its key from the document.
fn removes(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) => false,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(table) => table.is_empty(),
    }
}

impl<T> Clone for Patch<T> {
    fn clone(&self) -> Self {
        Self {
            names: self.names.clone(),
            keys: self.keys.clone(),
            of: PhantomData,
        }
    }
}

impl<T> PartialEq for Patch<T> {
    fn eq(&self, other: &Self) -> bool {
        (&self.names, &self.keys) == (&other.names, &other.keys)
    }
}

impl<T> Eq for Patch<T> {}

impl<T> fmt::Debug for Patch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Patch")
            .field(&self.names)
            .field(&self.keys)
            .finish()
    }
}

impl<T: Patched> Serialize for Patch<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.names.len() + self.keys.len()))?;
        for ((key, _), name) in T::NAMED_BY.iter().zip(&self.names) {
            map.serialize_entry(key, name)?;
        }
        for (key, value) in &self.keys {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// An object in which no key is twice, at its first level.
struct Keys(Map<String, Value>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;

        impl<'de> Visitor<'de> for Once {
            type Value = Keys;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Keys, A::Error> {
                let mut keys = Map::new();
                while let Some((key, value)) = object.next_entry::<String, Value>()? {
                    if keys.contains_key(&key) {
                        return Err(A::Error::custom(format!("duplicate field `{key}`")));
                    }
                    keys.insert(key, value);
                }
                Ok(Keys(keys))
            }
        }

        deserializer.deserialize_map(Once)
    }
}

impl<'de, T: Patched> Deserialize<'de> for Patch<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Keys(mut keys) = Keys::deserialize(deserializer)?;
        let mut names = Vec::new();
        for (key, _) in T::NAMED_BY {
            match keys.remove(*key) {
                Some(Value::String(name)) => names.push(name),
                Some(_) => return Err(D::Error::custom(format!("`{key}` is not a string"))),
                None => return Err(D::Error::missing_field(key)),
            }
        }
        keys.retain(|_, value| !value.is_null());
        let patch = Self {
            names,
            keys,
            of: PhantomData,
        };
        patch.check().map_err(D::Error::custom)?;
        Ok(patch)
    }
}

impl<T: Patched> ToSchema for Patch<T> {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed(T::SCHEMA)
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        T::schemas(schemas);
    }
}

impl<T: Patched> PartialSchema for Patch<T> {
    fn schema() -> RefOr<Schema> {
        let mut patch = ObjectBuilder::new()
            .description(Some(
                "Keys to set; all others stay. An empty value removes its key from the document.",
            ))
            .additional_properties(Some(AdditionalProperties::FreeForm(false)));
        for (key, meaning) in T::NAMED_BY {
            let name = ObjectBuilder::new().schema_type(Type::String);
            let name = name.description(Some(*meaning));
            patch = patch.property(*key, name).required(*key);
        }
        if let RefOr::T(Schema::Object(thing)) = T::schema() {
            for (key, property) in thing.properties {
                let is_name = T::NAMED_BY.iter().any(|(name, _)| *name == key);
                if !is_name && !T::IDENTITY.contains(&key.as_str()) {
                    patch = patch.property(key, property);
                }
            }
        }
        patch.into()
    }
}

#[cfg(test)]
mod tests {
    use crate::edit::{LunKeys, NbdKeys, QuotaKeys, TargetKeys};
    use crate::spec;

    #[test]
    fn no_key_is_set_twice() {
        for keys in [
            r#"{"id": "a", "serial": "A", "serial": "B"}"#,
            r#"{"id": "a", "id": "b", "serial": "A"}"#,
        ] {
            let error = serde_json::from_str::<LunKeys>(keys).unwrap_err();
            assert!(error.to_string().contains("duplicate field"), "{error}");
        }
    }

    #[test]
    fn what_is_given_is_set_and_what_is_empty_is_removed() {
        let target = spec::Target {
            name: "iqn.x".to_owned(),
            alias: Some("disks".to_owned()),
            portals: Some(vec![spec::Portal::default()]),
            auth: vec!["alice".to_owned()],
            ..spec::Target::default()
        };
        let keys =
            r#"{"name": "iqn.x", "alias": "", "portals": [], "auth": ["bob"], "luns": null}"#;
        let keys: TargetKeys = serde_json::from_str(keys).unwrap();
        let expected = spec::Target {
            name: "iqn.x".to_owned(),
            auth: vec!["bob".to_owned()],
            ..spec::Target::default()
        };
        assert_eq!(keys.applied(&target).unwrap(), expected);
        let quota = spec::Quota {
            soft: Some(80),
            ..spec::Quota::default()
        };
        let keys = QuotaKeys::of(["owner:a"]).with("soft", 0);
        assert_eq!(keys.applied(&quota).unwrap().soft, None);
    }

    #[test]
    fn a_name_is_no_key_and_a_value_has_the_type_of_its_key() {
        for text in [
            r#"{"store": "mem:1M"}"#,
            r#"{"id": 5}"#,
            r#"{"id": "a", "serial": 5}"#,
            r#"{"id": "a", "size": 5}"#,
        ] {
            assert!(serde_json::from_str::<LunKeys>(text).is_err(), "{text}");
        }
        let keys = serde_json::from_str::<NbdKeys>(r#"{"nbd": "[::1]", "bind": "[::2]"}"#);
        assert!(keys.unwrap_err().to_string().contains("cannot set `bind`"));
    }
}
