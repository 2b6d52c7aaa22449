//! What differs between a value and its schema. While a value is checked, a mismatch only refers to
//! its path and to its keyword; the text is written for those that are reported.

use super::compile::TypeName;
use super::{MismatchKind, SchemaMismatch};
use crate::message_text::{describe_value, join_shown, truncate_message, truncate_shown};
use crate::schema::SchemaFormat;
use serde_json::{Number, Value};

const UUID_EXAMPLE: &str = "0198c0de-0000-7000-8000-000000000000";

#[derive(Debug, Clone, Copy)]
pub(super) enum Segment<'a> {
    Name(&'a str),
    Index(usize),
}

#[derive(Debug)]
pub(super) struct Mismatch<'a> {
    pub(super) path: Vec<Segment<'a>>,
    pub(super) cause: MismatchCause<'a>,
}

#[derive(Debug)]
pub(super) enum MismatchCause<'a> {
    NotAllowed,
    Type {
        names: Vec<TypeName>,
        found: &'a Value,
    },
    NotOneOf(&'a [Value]),
    NotEqual(&'a Value),
    Number {
        /// Such as "at least".
        relation: &'static str,
        bound: &'a Number,
    },
    Count {
        /// "least" or "most".
        side: &'static str,
        bound: u64,
        of: &'static str,
    },
    Pattern(&'a str),
    Format(SchemaFormat),
    Duplicate,
    /// What is wrong with the name of a property.
    Name(String),
    Missing {
        required_by: Option<&'a str>,
    },
    Unknown {
        known: &'a [String],
    },
    MatchesNot,
    MatchesSeveral(usize),
}

impl Mismatch<'_> {
    pub(super) fn to_reported(&self) -> SchemaMismatch {
        let mut path = String::new();
        for segment in &self.path {
            match segment {
                Segment::Name(name) => super::push_segment(&mut path, &truncate_shown(name)),
                Segment::Index(index) => super::push_segment(&mut path, &index.to_string()),
            }
        }
        let kind = match self.cause {
            MismatchCause::Missing { .. } => MismatchKind::Missing,
            MismatchCause::Unknown { .. } => MismatchKind::Unknown,
            _ => MismatchKind::Other,
        };
        SchemaMismatch { path, kind, message: truncate_message(&self.cause.message()) }
    }
}

impl MismatchCause<'_> {
    pub(super) fn message(&self) -> String {
        match self {
            Self::NotAllowed => "is not allowed".to_owned(),
            Self::Type { names, found } => {
                let names = TypeName::ALL.into_iter().filter(|name| names.contains(name));
                let expected = names.map(TypeName::name).collect::<Vec<_>>().join(" or ");
                format!("must be {expected}, but is {}", describe_value(found))
            }
            Self::NotOneOf(choices) => format!("must be one of {}", join_shown(*choices)),
            Self::NotEqual(only) => format!("must be {}", truncate_shown(only)),
            Self::Number { relation, bound } => format!("must be {relation} {bound}"),
            Self::Count { side, bound, of } => format!("must have at {side} {bound} {of}"),
            Self::Pattern(text) => format!("must match the pattern {}", truncate_shown(text)),
            Self::Format(SchemaFormat::Uuid) => {
                format!("must be an id (UUID), such as {UUID_EXAMPLE}")
            }
            Self::Format(format) => format!("must have the format {}", format.name()),
            Self::Duplicate => "must not be equal to an earlier item".to_owned(),
            Self::Name(reason) => format!("its name {reason}"),
            Self::Missing { required_by: None } => "is missing".to_owned(),
            Self::Missing { required_by: Some(name) } => {
                format!("is missing; \"{}\" requires it", truncate_shown(name.escape_debug()))
            }
            Self::Unknown { known: [] } => "is unknown".to_owned(),
            Self::Unknown { known } => format!("is unknown; use one of {}", join_shown(*known)),
            Self::MatchesNot => "must not match the schema in \"not\"".to_owned(),
            Self::MatchesSeveral(count) => {
                format!("must match one schema of \"oneOf\", but matches {count}")
            }
        }
    }
}
