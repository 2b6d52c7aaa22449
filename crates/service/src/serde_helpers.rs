//! Deserializes JSON objects in requests from objects only: serde would also accept an array with
//! the fields in order, which neither the documentation nor the schema allows.

use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, de};
use std::fmt;
use std::marker::PhantomData;

pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(Visitor(PhantomData))
}

pub(crate) fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let items = Vec::<Item<T>>::deserialize(deserializer)?;
    Ok(items.into_iter().map(|Item(item)| item).collect())
}

pub(crate) fn optional<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(Option::<Item<T>>::deserialize(deserializer)?.map(|Item(item)| item))
}

#[derive(Deserialize)]
#[serde(transparent, bound = "T: Deserialize<'de>")]
struct Item<T>(#[serde(deserialize_with = "object")] T);

struct Visitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Visitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
