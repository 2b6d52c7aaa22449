//! Reads a schema into [`Subschema`]s. Everything that makes a schema invalid or too costly is found
//! here, before a value is checked.

use super::pattern::{Pattern, PatternCompiler};
use super::{DRAFTS, JsonSchemaError};
use crate::choices::Choices;
use crate::number::compare_number;
use crate::schema::SchemaFormat;
use crate::value_memory::count_values;
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Subschemas, keywords, and the values and names in them, with references expanded. Schemas of large
/// APIs have some thousands.
pub(super) const NODES_MAX: usize = 10_000;
/// Levels of JSON with references expanded: values are checked by recursion.
pub(super) const DEPTH_MAX: usize = 96;
/// Memory of a subschema or a keyword, without its texts.
const NODE_BYTES: usize = 256;

/// With these a reference could refer to something else than its path says.
const REBASING_KEYWORDS: [&str; 6] =
    ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"];
/// Places of schemas that only references use.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    Draft7,
    Draft201909,
    Draft202012,
}

/// A schema within a schema, and what it takes to evaluate it.
#[derive(Debug)]
pub(super) struct Subschema {
    pub(super) keywords: Keywords,
    nodes: usize,
    levels: usize,
}

#[derive(Debug)]
pub(super) enum Keywords {
    /// The schema `true`.
    Any,
    /// The schema `false`.
    Never,
    All(Vec<Keyword>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeName {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

#[derive(Debug)]
pub(super) enum Keyword {
    Type(Vec<TypeName>),
    Enum(Choices),
    Const(Value),
    Minimum(Number),
    Maximum(Number),
    ExclusiveMinimum(Number),
    ExclusiveMaximum(Number),
    MultipleOf(Number),
    MinLength(u64),
    MaxLength(u64),
    Pattern(Arc<Pattern>),
    Format(SchemaFormat),
    MinItems(u64),
    MaxItems(u64),
    UniqueItems,
    /// `prefixItems` and `items`, or `items` and `additionalItems` in older drafts.
    Items {
        prefix: Vec<Arc<Subschema>>,
        rest: Option<Arc<Subschema>>,
    },
    Contains {
        schema: Arc<Subschema>,
        min: u64,
        max: Option<u64>,
        evaluates: bool,
    },
    MinProperties(u64),
    MaxProperties(u64),
    Required(Vec<String>),
    /// `properties`, `patternProperties` and `additionalProperties`.
    Properties(PropertyRules),
    PropertyNames(Arc<Subschema>),
    DependentRequired(Vec<(String, Vec<String>)>),
    DependentSchemas(Vec<(String, Arc<Subschema>)>),
    /// `allOf`, and the target of `$ref`.
    AllOf(Vec<Arc<Subschema>>),
    AnyOf(Vec<Arc<Subschema>>),
    OneOf(Vec<Arc<Subschema>>),
    Not(Arc<Subschema>),
    Conditional {
        condition: Arc<Subschema>,
        then: Option<Arc<Subschema>>,
        otherwise: Option<Arc<Subschema>>,
    },
    UnevaluatedItems(Arc<Subschema>),
    UnevaluatedProperties(Arc<Subschema>),
}

#[derive(Debug, Default)]
pub(super) struct PropertyRules {
    /// In the order of the schema, for messages.
    pub(super) names: Vec<String>,
    pub(super) properties: HashMap<String, Arc<Subschema>>,
    pub(super) patterns: Vec<(Arc<Pattern>, Arc<Subschema>)>,
    pub(super) additional: Option<Arc<Subschema>>,
}

impl TypeName {
    /// In the order of messages.
    pub(super) const ALL: [Self; 7] = [
        Self::Boolean,
        Self::Integer,
        Self::Number,
        Self::String,
        Self::Array,
        Self::Object,
        Self::Null,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::String => "string",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

impl Draft {
    /// The draft that `$schema` names; the newest one if it is absent.
    pub(super) fn of(schema: &Value) -> Result<Self, JsonSchemaError> {
        let Some(named) = schema.get("$schema") else { return Ok(Self::Draft202012) };
        let known = named.as_str().map(|named| named.trim_end_matches('#'));
        match DRAFTS.into_iter().find(|(_, uri)| Some(*uri) == known) {
            Some((draft, _)) => Ok(draft),
            None => Err(JsonSchemaError::Draft { named: named.to_string().replace('"', "") }),
        }
    }
}

pub(super) struct Compiler<'a> {
    /// What references are resolved in.
    document: &'a Value,
    draft: Draft,
    asserts_formats: bool,
    /// Path of the current schema in the document, for errors.
    path: String,
    depth: usize,
    /// Targets of references; `None` while one is being compiled.
    references: HashMap<&'a str, Option<Arc<Subschema>>>,
    patterns: PatternCompiler<'a>,
    /// Of the subschemas so far of the current one.
    nodes: usize,
    levels: usize,
    pub(super) has_unevaluated: bool,
}

type Compiled<T> = Result<T, JsonSchemaError>;

impl<'a> Compiler<'a> {
    pub(super) fn new(document: &'a Value, draft: Draft, asserts_formats: bool) -> Self {
        Self {
            document,
            draft,
            asserts_formats,
            path: String::new(),
            depth: 0,
            references: HashMap::new(),
            patterns: PatternCompiler::new(),
            nodes: 0,
            levels: 0,
            has_unevaluated: false,
        }
    }

    pub(super) fn compile_schema(&mut self, schema: &'a Value) -> Compiled<Arc<Subschema>> {
        let outer = (std::mem::take(&mut self.nodes), std::mem::take(&mut self.levels));
        let keywords = match schema {
            Value::Bool(true) => Keywords::Any,
            Value::Bool(false) => Keywords::Never,
            Value::Object(members) => {
                self.nodes = members.len();
                Keywords::All(self.compile_keywords(members)?)
            }
            _ => return Err(self.invalid_error("must be a schema: an object, true or false")),
        };
        let (nodes, levels) = (self.nodes.saturating_add(1), self.levels);
        (self.nodes, self.levels) = outer;
        let compiled = Arc::new(Subschema { keywords, nodes, levels });
        self.count_schema(&compiled, 0)?;
        Ok(compiled)
    }

    /// Adds a subschema to the size of the current one.
    fn count_schema(&mut self, schema: &Subschema, levels: usize) -> Compiled<()> {
        self.levels = self.levels.max(schema.levels + levels);
        let is_flat = self.depth + self.levels <= DEPTH_MAX;
        if is_flat { self.count_nodes(schema.nodes) } else { Err(JsonSchemaError::TooLarge) }
    }

    fn count_nodes(&mut self, nodes: usize) -> Compiled<()> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes <= NODES_MAX { Ok(()) } else { Err(JsonSchemaError::TooLarge) }
    }

    /// Estimates the memory of a schema that was compiled, with its patterns.
    pub(super) fn memory_of(&self, schema: &Subschema) -> usize {
        schema.nodes * NODE_BYTES + self.patterns.memory_bytes()
    }

    fn invalid_error(&self, reason: impl Into<String>) -> JsonSchemaError {
        JsonSchemaError::Invalid { path: self.path.clone(), reason: reason.into() }
    }

    /// Works one level further down.
    fn descend_into<T>(
        &mut self,
        key: &str,
        work: impl FnOnce(&mut Self) -> Compiled<T>,
    ) -> Compiled<T> {
        let length = self.path.len();
        super::push_segment(&mut self.path, key);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(JsonSchemaError::TooLarge);
        }
        let levels = std::mem::take(&mut self.levels);
        let done = work(self)?;
        self.levels = levels.max(self.levels + 1);
        self.depth -= 1;
        self.path.truncate(length);
        Ok(done)
    }

    fn compile_keywords(&mut self, members: &'a Map<String, Value>) -> Compiled<Vec<Keyword>> {
        if let Some(key) = REBASING_KEYWORDS.into_iter().find(|key| members.contains_key(*key)) {
            return Err(JsonSchemaError::Keyword(key.to_owned()));
        }
        for definitions in DEFINITIONS {
            self.compile_named_schemas(members, definitions)?;
        }
        let mut all = Vec::new();
        if let Some(reference) = members.get("$ref") {
            all.push(Keyword::AllOf(vec![self.compile_reference(reference)?]));
            // The others beside it do not count.
            if self.draft == Draft::Draft7 {
                return Ok(all);
            }
        }
        self.compile_value_keywords(members, &mut all)?;
        self.compile_number_keywords(members, &mut all)?;
        self.compile_string_keywords(members, &mut all)?;
        self.compile_object_keywords(members, &mut all)?;
        self.compile_array_keywords(members, &mut all)?;
        self.compile_combinations(members, &mut all)?;
        // They come last, since they see what the others have evaluated.
        if self.draft > Draft::Draft7 {
            let items = self.compile_optional_schema(members, "unevaluatedItems")?;
            let properties = self.compile_optional_schema(members, "unevaluatedProperties")?;
            self.has_unevaluated |= items.is_some() || properties.is_some();
            all.extend(items.map(Keyword::UnevaluatedItems));
            all.extend(properties.map(Keyword::UnevaluatedProperties));
        }
        Ok(all)
    }

    fn compile_value_keywords(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        if let Some(kind) = members.get("type") {
            let names = self.descend_into("type", |compiler| compiler.read_type_names(kind))?;
            all.insert(0, Keyword::Type(names));
        }
        if let Some(choices) = members.get("enum") {
            let Value::Array(choices) = choices else {
                return self.descend_into("enum", |compiler| {
                    Err(compiler.invalid_error("must be an array"))
                });
            };
            self.count_nodes(choices.iter().map(count_values).sum())?;
            all.push(Keyword::Enum(choices.clone().into()));
        }
        if let Some(only) = members.get("const") {
            self.count_nodes(count_values(only))?;
            all.push(Keyword::Const(only.clone()));
        }
        Ok(())
    }

    fn read_type_names(&self, kind: &Value) -> Compiled<Vec<TypeName>> {
        let find = |name: &Value| TypeName::ALL.into_iter().find(|known| *name == known.name());
        let is_set = |names: &Vec<TypeName>| {
            names.iter().enumerate().all(|(at, name)| !names.iter().take(at).any(|it| it == name))
        };
        let names = match kind {
            Value::String(_) => find(kind).map(|name| vec![name]),
            Value::Array(names) if (1..=TypeName::ALL.len()).contains(&names.len()) => {
                names.iter().map(find).collect::<Option<_>>().filter(is_set)
            }
            _ => None,
        };
        names.ok_or_else(|| {
            let known = TypeName::ALL.map(TypeName::name).join(", ");
            self.invalid_error(format!("must be one of {known}, or an array of different ones"))
        })
    }

    fn compile_number_keywords(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        all.extend(self.read_number(members, "minimum")?.map(Keyword::Minimum));
        all.extend(self.read_number(members, "maximum")?.map(Keyword::Maximum));
        all.extend(self.read_number(members, "exclusiveMinimum")?.map(Keyword::ExclusiveMinimum));
        all.extend(self.read_number(members, "exclusiveMaximum")?.map(Keyword::ExclusiveMaximum));
        if let Some(divisor) = self.read_number(members, "multipleOf")? {
            if compare_number(&divisor, 0.0).is_le() {
                return self.descend_into("multipleOf", |it| {
                    Err(it.invalid_error("must be greater than 0"))
                });
            }
            all.push(Keyword::MultipleOf(divisor));
        }
        Ok(())
    }

    fn compile_string_keywords(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        all.extend(self.read_length(members, "minLength")?.map(Keyword::MinLength));
        all.extend(self.read_length(members, "maxLength")?.map(Keyword::MaxLength));
        if let Some(pattern) = members.get("pattern") {
            let pattern = self.descend_into("pattern", |compiler| match pattern.as_str() {
                Some(text) => compiler.compile_pattern(text),
                None => Err(compiler.invalid_error("must be a string")),
            })?;
            all.push(Keyword::Pattern(pattern));
        }
        let format = members.get("format").and_then(Value::as_str).filter(|_| self.asserts_formats);
        let format = format.and_then(SchemaFormat::from_name).filter(|format| format.is_text());
        all.extend(format.map(Keyword::Format));
        Ok(())
    }

    fn compile_array_keywords(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        all.extend(self.read_length(members, "minItems")?.map(Keyword::MinItems));
        all.extend(self.read_length(members, "maxItems")?.map(Keyword::MaxItems));
        match members.get("uniqueItems") {
            Some(Value::Bool(true)) => all.push(Keyword::UniqueItems),
            None | Some(Value::Bool(false)) => {}
            Some(_) => {
                return self.descend_into("uniqueItems", |it| {
                    Err(it.invalid_error("must be true or false"))
                });
            }
        }
        let (prefix, rest) = if self.draft == Draft::Draft202012 {
            if members.get("items").is_some_and(Value::is_array) {
                let reason = "must be a schema; for an array of schemas use \"prefixItems\"";
                return self.descend_into("items", |compiler| Err(compiler.invalid_error(reason)));
            }
            (
                self.compile_schemas(members, "prefixItems")?,
                self.compile_optional_schema(members, "items")?,
            )
        } else if members.get("items").is_some_and(Value::is_array) {
            (
                self.compile_schemas(members, "items")?,
                self.compile_optional_schema(members, "additionalItems")?,
            )
        } else {
            // Without a list of items it has no effect, but it must be a schema.
            self.compile_optional_schema(members, "additionalItems")?;
            (Vec::new(), self.compile_optional_schema(members, "items")?)
        };
        if !prefix.is_empty() || rest.is_some() {
            all.push(Keyword::Items { prefix, rest });
        }
        let contains = self.compile_optional_schema(members, "contains")?;
        let (mut min, mut max) = (None, None);
        if self.draft > Draft::Draft7 {
            min = self.read_length(members, "minContains")?;
            max = self.read_length(members, "maxContains")?;
        }
        let evaluates = self.draft == Draft::Draft202012;
        let min = min.unwrap_or(1);
        all.extend(contains.map(|schema| Keyword::Contains { schema, min, max, evaluates }));
        Ok(())
    }

    fn compile_object_keywords(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        all.extend(self.read_length(members, "minProperties")?.map(Keyword::MinProperties));
        all.extend(self.read_length(members, "maxProperties")?.map(Keyword::MaxProperties));
        if let Some(required) = members.get("required") {
            let names = self.descend_into("required", |compiler| compiler.read_names(required))?;
            all.push(Keyword::Required(names));
        }
        let properties = self.compile_named_schemas(members, "properties")?;
        let mut patterns = Vec::new();
        for (pattern, schema) in self.compile_named_schemas(members, "patternProperties")? {
            let pattern = self
                .descend_into("patternProperties", |compiler| compiler.compile_pattern(pattern))?;
            patterns.push((pattern, schema));
        }
        let additional = self.compile_optional_schema(members, "additionalProperties")?;
        if !properties.is_empty() || !patterns.is_empty() || additional.is_some() {
            let names = properties.iter().map(|(name, _)| (*name).to_owned()).collect();
            let properties =
                properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
            let rules = PropertyRules { names, properties, patterns, additional };
            all.push(Keyword::Properties(rules));
        }
        all.extend(
            self.compile_optional_schema(members, "propertyNames")?.map(Keyword::PropertyNames),
        );
        self.compile_dependency_keywords(members, all)
    }

    fn compile_dependency_keywords(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        let (mut names, mut schemas) = (Vec::new(), Vec::new());
        if self.draft > Draft::Draft7 {
            let required = self.read_object(members, "dependentRequired")?;
            self.count_nodes(required.len())?;
            for (name, required) in required {
                let required =
                    self.descend_into("dependentRequired", |it| it.read_names(required))?;
                names.push((name.to_owned(), required));
            }
            let dependent = self.compile_named_schemas(members, "dependentSchemas")?;
            schemas.extend(dependent.into_iter().map(|(name, it)| (name.to_owned(), it)));
        }
        // The form of draft 7, which newer schemas still use.
        let dependencies = self.read_object(members, "dependencies")?;
        self.count_nodes(dependencies.len())?;
        for (name, dependency) in dependencies {
            self.descend_into("dependencies", |compiler| {
                if dependency.is_array() {
                    names.push((name.to_owned(), compiler.read_names(dependency)?));
                } else {
                    let schema = compiler
                        .descend_into(name, |compiler| compiler.compile_schema(dependency))?;
                    schemas.push((name.to_owned(), schema));
                }
                Ok(())
            })?;
        }
        all.extend((!names.is_empty()).then_some(Keyword::DependentRequired(names)));
        all.extend((!schemas.is_empty()).then_some(Keyword::DependentSchemas(schemas)));
        Ok(())
    }

    fn compile_combinations(
        &mut self,
        members: &'a Map<String, Value>,
        all: &mut Vec<Keyword>,
    ) -> Compiled<()> {
        for (key, keyword) in [
            ("allOf", Keyword::AllOf as fn(Vec<Arc<Subschema>>) -> Keyword),
            ("anyOf", Keyword::AnyOf),
            ("oneOf", Keyword::OneOf),
        ] {
            if members.contains_key(key) {
                all.push(keyword(self.compile_schemas(members, key)?));
            }
        }
        all.extend(self.compile_optional_schema(members, "not")?.map(Keyword::Not));
        let condition = self.compile_optional_schema(members, "if")?;
        let then = self.compile_optional_schema(members, "then")?;
        let otherwise = self.compile_optional_schema(members, "else")?;
        let conditional = |condition| Keyword::Conditional { condition, then, otherwise };
        all.extend(condition.map(conditional));
        Ok(())
    }

    fn compile_reference(&mut self, reference: &'a Value) -> Compiled<Arc<Subschema>> {
        let Some(text) = reference.as_str() else {
            return self
                .descend_into("$ref", |compiler| Err(compiler.invalid_error("must be a string")));
        };
        match self.references.get(text) {
            Some(None) => return Err(JsonSchemaError::TooLarge),
            Some(Some(known)) => {
                let known = Arc::clone(known);
                self.count_schema(&known, 1)?;
                return Ok(known);
            }
            None => {}
        }
        let pointer = text.strip_prefix('#').filter(|pointer| !pointer.contains('%'));
        let target = pointer.and_then(|pointer| self.document.pointer(pointer));
        let target = target.ok_or_else(|| JsonSchemaError::Reference(text.to_owned()))?;
        self.references.insert(text, None);
        let compiled = self.descend_into("$ref", |compiler| compiler.compile_schema(target))?;
        self.references.insert(text, Some(Arc::clone(&compiled)));
        Ok(compiled)
    }

    fn compile_optional_schema(
        &mut self,
        members: &'a Map<String, Value>,
        key: &str,
    ) -> Compiled<Option<Arc<Subschema>>> {
        members
            .get(key)
            .map(|schema| self.descend_into(key, |it| it.compile_schema(schema)))
            .transpose()
    }

    fn compile_schemas(
        &mut self,
        members: &'a Map<String, Value>,
        key: &str,
    ) -> Compiled<Vec<Arc<Subschema>>> {
        let Some(schemas) = members.get(key) else { return Ok(Vec::new()) };
        self.descend_into(key, |compiler| {
            let schemas = schemas.as_array().filter(|schemas| !schemas.is_empty());
            let schemas = schemas
                .ok_or_else(|| compiler.invalid_error("must be an array of one or more schemas"))?
                .iter()
                .enumerate();
            schemas
                .map(|(index, schema)| {
                    compiler.descend_into(&index.to_string(), |compiler| {
                        compiler.compile_schema(schema)
                    })
                })
                .collect()
        })
    }

    fn compile_named_schemas(
        &mut self,
        members: &'a Map<String, Value>,
        key: &str,
    ) -> Compiled<Vec<(&'a str, Arc<Subschema>)>> {
        let schemas = self.read_object(members, key)?;
        self.descend_into(key, |compiler| {
            schemas
                .into_iter()
                .map(|(name, schema)| {
                    Ok((
                        name,
                        compiler.descend_into(name, |compiler| compiler.compile_schema(schema))?,
                    ))
                })
                .collect()
        })
    }

    fn read_object(
        &mut self,
        members: &'a Map<String, Value>,
        key: &str,
    ) -> Compiled<Vec<(&'a str, &'a Value)>> {
        match members.get(key) {
            None => Ok(Vec::new()),
            Some(Value::Object(object)) => {
                Ok(object.iter().map(|(name, value)| (name.as_str(), value)).collect())
            }
            Some(_) => {
                self.descend_into(key, |compiler| Err(compiler.invalid_error("must be an object")))
            }
        }
    }

    fn read_names(&mut self, names: &'a Value) -> Compiled<Vec<String>> {
        let texts = |names: &Vec<Value>| {
            names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let names = names.as_array().and_then(texts);
        let names = names.ok_or_else(|| self.invalid_error("must be an array of strings"))?;
        self.count_nodes(names.len())?;
        Ok(names)
    }

    fn read_number(
        &mut self,
        members: &'a Map<String, Value>,
        key: &str,
    ) -> Compiled<Option<Number>> {
        match members.get(key) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(Some(number.clone())),
            Some(_) => {
                self.descend_into(key, |compiler| Err(compiler.invalid_error("must be a number")))
            }
        }
    }

    /// A length or count. A float is valid if it is whole.
    fn read_length(&mut self, members: &'a Map<String, Value>, key: &str) -> Compiled<Option<u64>> {
        let Some(value) = members.get(key) else { return Ok(None) };
        let whole = || value.as_f64().filter(|float| float.fract() == 0.0 && *float >= 0.0);
        match value.as_u64().or_else(|| whole().map(|float| float as u64)) {
            Some(length) => Ok(Some(length)),
            None => self.descend_into(key, |it| {
                Err(it.invalid_error("must be an integer that is not negative"))
            }),
        }
    }

    fn compile_pattern(&mut self, text: &'a str) -> Compiled<Arc<Pattern>> {
        self.patterns.compile_pattern(text).map_err(|reason| self.invalid_error(reason))
    }
}
