//! The one name that JSON of others must not have.
//!
//! While any crate of the program has `raw_value` of serde_json switched on, an object that begins with
//! this name is not read as an object: the text behind it is parsed as JSON of its own, past every bound
//! on depth and memory, and a server that reads it overflows its stack. So text of others is looked
//! through before a [`serde_json::Value`] is made of it.

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::fmt;

/// The name by which serde_json hands raw JSON on.
pub const RESERVED_NAME: &str = "$serde_json::private::RawValue";

/// Whether an object anywhere in this JSON has the reserved name, however it is written. Text that is no
/// JSON is looked through as far as it can be read.
pub fn has_reserved_name(json: &[u8]) -> bool {
    let mut found = false;
    let mut reader = serde_json::Deserializer::from_slice(json);
    // Whoever reads it next says what else is wrong with it.
    let _ = Names(&mut found).deserialize(&mut reader);
    found
}

/// Anything that can be read and in which no object has the reserved name.
#[derive(Debug)]
pub struct PlainNames;

impl<'de> Deserialize<'de> for PlainNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = false;
        Names(&mut found).deserialize(deserializer)?;
        if found {
            return Err(serde::de::Error::custom(format!("the name {RESERVED_NAME} is reserved")));
        }
        Ok(Self)
    }
}

/// Goes through a value and looks at the names of its objects.
struct Names<'a>(&'a mut bool);

impl<'de> DeserializeSeed<'de> for Names<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Names<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Names(&mut *self.0))?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        while let Some(name) = entries.next_key::<String>()? {
            if name == RESERVED_NAME {
                *self.0 = true;
                entries.next_value::<IgnoredAny>()?;
            } else {
                entries.next_value_seed(Names(&mut *self.0))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t127_the_reserved_name_is_found_wherever_and_however_it_is_written() {
        for json in [
            r#"{"$serde_json::private::RawValue":"[1]"}"#,
            r#"[{"a":{"b":[{"$serde_json::private::RawValue":"[1]"}]}}]"#,
            r#"{"\u0024serde_json::private::RawValu\u0065":"[1]"}"#,
            r#"{"a":1,"$serde_json::private::RawValue":1,"#,
        ] {
            assert!(has_reserved_name(json.as_bytes()), "{json}");
        }
        for json in [
            r#"{"a":"$serde_json::private::RawValue"}"#,
            r#"["$serde_json::private::RawValue",1.5,null,true,-1]"#,
            r#"{"$serde_json::private::Raw":{}}"#,
            "no JSON",
        ] {
            assert!(!has_reserved_name(json.as_bytes()), "{json}");
        }
    }
}
