//! Parses the frontmatter of a `SKILL.md`, and finds the start of its body.
//!
//! The YAML is untrusted. Its size is checked before it is parsed, anchors are not allowed, and it
//! becomes texts, lists and mappings of limited depth and number.

use crate::error::SkillError;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

/// Names and descriptions have hundreds of bytes; the rest is for other tools' metadata.
pub(crate) const YAML_BYTES_MAX: usize = 64 * 1024;
/// A mapping in the frontmatter has two levels; this many are not written by hand.
const DEPTH_MAX: usize = 32;
const NODES_MAX: usize = 4_096;
const FENCE: &str = "---";

pub(crate) type FrontmatterFields = BTreeMap<String, YamlNode>;

/// A value. Every scalar is its source text: a name that looks like a number stays a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum YamlNode {
    Text(String),
    List,
    Mapping(FrontmatterFields),
}

/// The two parts of a `SKILL.md`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SkillDocument<'a> {
    /// Includes the opening fence, which is valid YAML and keeps line numbers correct.
    yaml: &'a str,
    pub(crate) body: &'a str,
}

impl<'a> SkillDocument<'a> {
    pub(crate) fn split(text: &'a str) -> Result<Self, SkillError> {
        let mut end = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            let fence = line.trim_end() == FENCE;
            if number == 0 && !fence {
                return Err(SkillError::NoFrontmatter);
            }
            if number > 0 && fence {
                let (yaml, rest) = text.split_at(end);
                return Ok(Self { yaml, body: rest[line.len()..].trim() });
            }
            end += line.len();
        }
        Err(if end == 0 { SkillError::NoFrontmatter } else { SkillError::UnclosedFrontmatter })
    }

    pub(crate) fn fields(&self) -> Result<FrontmatterFields, SkillError> {
        if self.yaml.len() > YAML_BYTES_MAX {
            return Err(SkillError::FrontmatterTooLarge(self.yaml.len()));
        }
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: DEPTH_MAX,
                max_nodes: NODES_MAX,
                // A few lines with anchors can expand to gigabytes.
                max_anchors: 0,
                max_aliases: 0,
                max_merge_keys: 0,
            },
            strict_booleans: true,
            non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
            with_snippet: false,
        };
        match serde_saphyr::from_str_with_options(self.yaml, options) {
            Ok(YamlNode::Mapping(fields)) => Ok(fields),
            Ok(YamlNode::Text(_) | YamlNode::List) => Err(SkillError::NotAMapping),
            Err(error) => Err(SkillError::Yaml(Box::new(error))),
        }
    }
}

impl<'de> Deserialize<'de> for YamlNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

/// Scalar types that YAML distinguishes and this crate does not.
macro_rules! text_of {
    ($($visit:ident: $kind:ty),*) => {
        $(fn $visit<E>(self, value: $kind) -> Result<YamlNode, E> {
            Ok(YamlNode::Text(value.to_string()))
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = YamlNode;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string, a list or a mapping")
    }

    text_of!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128,
             visit_f64: f64, visit_str: &str);

    fn visit_string<E>(self, value: String) -> Result<YamlNode, E> {
        Ok(YamlNode::Text(value))
    }

    /// An empty value.
    fn visit_unit<E>(self) -> Result<YamlNode, E> {
        Ok(YamlNode::Text(String::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<YamlNode, A::Error> {
        while items.next_element::<YamlNode>()?.is_some() {}
        Ok(YamlNode::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<YamlNode, A::Error> {
        let mut fields = FrontmatterFields::new();
        while let Some(key) = entries.next_key::<YamlNode>()? {
            let YamlNode::Text(key) = key else {
                return Err(A::Error::custom("a key must be a string"));
            };
            fields.insert(key, entries.next_value()?);
        }
        Ok(YamlNode::Mapping(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(yaml: &str) -> Result<FrontmatterFields, SkillError> {
        SkillDocument::split(&format!("---\n{yaml}\n---\n"))?.fields()
    }

    fn text(text: &str) -> YamlNode {
        YamlNode::Text(text.into())
    }

    // proves K-01
    #[test]
    fn the_body_is_what_stands_after_the_second_fence() {
        let parts = SkillDocument::split("---\nname: a\n---\n\n# Title\n\n---\nmore\n").unwrap();
        assert_eq!(parts.body, "# Title\n\n---\nmore");
        assert_eq!(parts.fields().unwrap(), FrontmatterFields::from([("name".into(), text("a"))]));
        let windows = SkillDocument::split("---\r\nname: a\r\n---\r\nbody\r\n").unwrap();
        assert_eq!((windows.body, windows.fields().unwrap().len()), ("body", 1));
        assert_eq!(SkillDocument::split("---\nname: a\n---").unwrap().body, "");
    }

    #[test]
    fn three_dashes_inside_of_a_line_close_nothing() {
        let found = fields("description: first --- second").unwrap();
        assert_eq!(found["description"], text("first --- second"));
    }

    #[test]
    fn scalars_are_the_texts_that_they_are_written_as() {
        let found = fields("a: 12\nb: true\nc: on\nd: '007'\ne:\nf: |\n  two\n  lines\ng: .inf");
        let found = found.unwrap();
        let texts = ["12", "true", "on", "007", "", "two\nlines\n", ".inf"].map(text);
        assert_eq!(found.into_values().collect::<Vec<_>>(), texts);
    }

    #[test]
    fn yaml_that_refers_to_itself_is_refused_and_an_asterisk_in_a_text_is_not() {
        assert!(matches!(fields("a: &x [1, 2]\nb: [*x, *x]"), Err(SkillError::Yaml(_))));
        assert!(matches!(fields("a: &x {b: 1}\nc:\n  <<: *x"), Err(SkillError::Yaml(_))));
        assert_eq!(fields("a: 2 * x").unwrap()["a"], text("2 * x"));
    }

    #[test]
    fn an_error_names_its_line_in_the_file() {
        let error = fields("name: a\ndescription: when: it rains").unwrap_err().to_string();
        assert!(error.starts_with("Invalid YAML in frontmatter: "), "{error}");
        assert!(error.contains("line 3"), "{error}");
    }
}
