//! Converts a Python annotation to a schema.
//!
//! Strict mode accepts what the vendor's tool accepts, and users rely on what it refuses. Extended
//! mode is opt-in and adds optional values, literals, dicts, typed dicts, dataclasses and lists of
//! lists.

use crate::expression::{ExpressionKind, SourceExpression};
use crate::python::{ClassField, PythonClass, PythonModule};
use crate::schema::{
    AdditionalProperties, ArraySchema, CHOICES_MAX, DEPTH_MAX, NumberBounds, ObjectSchema,
    PropertyList, PropertySchema, PythonConversion, Schema, SchemaFormat, SchemaKind,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// The accepted annotations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AnnotationMode {
    #[default]
    Strict,
    Extended,
}

const FUTURE: &str = "__future__.annotations";

/// Limit for the fields of classes, counted at each use: classes that use each other twice double
/// the contract with each level, and this is far more than a model can read.
const CLASSES_CHARS_MAX: usize = 64 * 1024;

/// Why an annotation has no schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnsupportedAnnotation {
    /// The annotation as a whole.
    Annotation,
    NestedList,
    /// A field of a class that the annotation names.
    Field {
        class: String,
        field: String,
        annotation: String,
    },
    Recursive(String),
    TooDeep,
    TooLarge,
}

impl UnsupportedAnnotation {
    /// The message after the name of the parameter.
    pub(crate) fn reason(&self, annotation: &str) -> String {
        match self {
            Self::Annotation => annotation.to_owned(),
            Self::NestedList => "nested list types are not supported".to_owned(),
            Self::Field { class, field, annotation: of_field } => {
                format!("{annotation} (field '{field}' of {class} is {of_field})")
            }
            Self::Recursive(class) => format!("{annotation} ({class} contains itself)"),
            Self::TooDeep => format!("{annotation} (nested deeper than {DEPTH_MAX} levels)"),
            Self::TooLarge => format!(
                "{annotation} (the classes of this contract make more than {CLASSES_CHARS_MAX} \
                 characters)"
            ),
        }
    }
}

/// Reads all annotations of one contract, whose total size is bounded.
pub(crate) struct AnnotationReader<'a> {
    module: &'a PythonModule,
    annotations: AnnotationMode,
    /// The classes that are being read.
    classes_in_progress: Vec<&'a str>,
    depth: usize,
    classes_chars: usize,
}

impl<'a> AnnotationReader<'a> {
    pub(crate) fn new(module: &'a PythonModule, annotations: AnnotationMode) -> Self {
        Self { module, annotations, classes_in_progress: Vec::new(), depth: 0, classes_chars: 0 }
    }

    pub(crate) fn read(&mut self, form: &ExpressionKind) -> Result<Schema, UnsupportedAnnotation> {
        if self.depth == DEPTH_MAX {
            return Err(UnsupportedAnnotation::TooDeep);
        }
        self.depth += 1;
        let schema = match (self.read_primitive(form), self.annotations) {
            (Some(schema), _) => Ok(schema),
            (None, AnnotationMode::Strict) => self.read_strict_list(form),
            (None, AnnotationMode::Extended) => self.read_extended(form),
        };
        self.depth -= 1;
        schema
    }

    fn count_class_chars(&mut self, chars: usize) -> Result<(), UnsupportedAnnotation> {
        self.classes_chars += chars;
        if self.classes_chars > CLASSES_CHARS_MAX {
            Err(UnsupportedAnnotation::TooLarge)
        } else {
            Ok(())
        }
    }

    /// The qualified name, with the module that it was imported from. Names of typing_extensions
    /// count as those of typing.
    fn full_name(&self, path: &[String]) -> String {
        let (first, rest) = path.split_first().map_or(("", path), |(f, r)| (f.as_str(), r));
        let origin = self.module.imports.get(first).map_or(first, String::as_str);
        let steps = [origin].into_iter().chain(rest.iter().map(String::as_str));
        let full = steps.collect::<Vec<_>>().join(".");
        match full.strip_prefix("typing_extensions.") {
            Some(name) => format!("typing.{name}"),
            None => full,
        }
    }

    /// A name in the annotation that the module does not define, if Python will evaluate it.
    pub(crate) fn undefined_name(&self, form: &ExpressionKind) -> Option<String> {
        const BUILT_IN: [&str; 12] = [
            "str",
            "int",
            "float",
            "bool",
            "list",
            "dict",
            "set",
            "tuple",
            "frozenset",
            "bytes",
            "object",
            "complex",
        ];
        let PythonModule { imports, bound_names: bound, classes, .. } = self.module;
        // Either annotations are not evaluated, or a star import may define any name.
        if imports.contains_key("*") || imports.get("annotations").is_some_and(|of| of == FUTURE) {
            return None;
        }
        match form {
            ExpressionKind::Name(path) => path.first().cloned().filter(|name| {
                !BUILT_IN.contains(&name.as_str())
                    && !imports.contains_key(name)
                    && !bound.contains(name)
                    && !classes.contains_key(name)
            }),
            ExpressionKind::Subscript { of, items } => self
                .undefined_name(of)
                .or_else(|| items.iter().find_map(|item| self.undefined_name(item))),
            ExpressionKind::Union(left, right) => {
                self.undefined_name(left).or_else(|| self.undefined_name(right))
            }
            ExpressionKind::Call { .. } | ExpressionKind::Literal(_) | ExpressionKind::Other => {
                None
            }
        }
    }

    fn read_primitive(&self, form: &ExpressionKind) -> Option<Schema> {
        let ExpressionKind::Name(path) = form else { return None };
        if let [name] = path.as_slice() {
            if self.module.class(name).is_some() {
                return None;
            }
            let kind = match name.as_str() {
                "str" => Some(SchemaKind::String { format: None }),
                "int" => Some(SchemaKind::Integer(NumberBounds::default())),
                "bool" => Some(SchemaKind::Boolean),
                "float" => return Some(float_schema()),
                "datetime" => return Some(datetime_schema()),
                _ => None,
            };
            if let Some(kind) = kind {
                return Some(kind.into());
            }
        }
        let full = self.full_name(path);
        if full == "datetime.datetime" {
            return Some(datetime_schema());
        }
        (full == "NodeId" || full.ends_with(".NodeId")).then(node_id_schema)
    }

    fn is_list(&self, form: &ExpressionKind) -> bool {
        let ExpressionKind::Name(path) = form else { return false };
        let full = self.full_name(path);
        full == "list" || self.annotations == AnnotationMode::Extended && full == "typing.List"
    }

    fn read_strict_list(&mut self, form: &ExpressionKind) -> Result<Schema, UnsupportedAnnotation> {
        let ExpressionKind::Subscript { of, items } = form else {
            return Err(UnsupportedAnnotation::Annotation);
        };
        let [item] = items.as_slice() else { return Err(UnsupportedAnnotation::Annotation) };
        if !self.is_list(of) {
            return Err(UnsupportedAnnotation::Annotation);
        }
        let unquoted = item.unquoted();
        let item = unquoted.as_ref().unwrap_or(item);
        let is_nested = match item {
            ExpressionKind::Subscript { of, .. } => self.is_list(of),
            other => self.is_list(other),
        };
        if is_nested {
            return Err(UnsupportedAnnotation::NestedList);
        }
        self.read_primitive(item).map(list_schema).ok_or(UnsupportedAnnotation::Annotation)
    }

    fn read_extended(&mut self, form: &ExpressionKind) -> Result<Schema, UnsupportedAnnotation> {
        match form {
            ExpressionKind::Name(path) => self.read_extended_name(path),
            ExpressionKind::Subscript { of, items } => match of.as_ref() {
                ExpressionKind::Name(path) => {
                    let full = self.full_name(path);
                    self.read_extended_generic(&full, items)
                }
                _ => Err(UnsupportedAnnotation::Annotation),
            },
            ExpressionKind::Union(left, right) if right.is_none() => self.read_nullable(left),
            ExpressionKind::Union(left, right) if left.is_none() => self.read_nullable(right),
            ExpressionKind::Literal(Value::String(_)) => {
                let unquoted = form.unquoted().ok_or(UnsupportedAnnotation::Annotation)?;
                // A string inside a string would be parsed again and again.
                if matches!(unquoted, ExpressionKind::Literal(_)) {
                    return Err(UnsupportedAnnotation::Annotation);
                }
                self.read(&unquoted)
            }
            ExpressionKind::Union(..)
            | ExpressionKind::Call { .. }
            | ExpressionKind::Literal(_)
            | ExpressionKind::Other => Err(UnsupportedAnnotation::Annotation),
        }
    }

    fn read_extended_name(&mut self, path: &[String]) -> Result<Schema, UnsupportedAnnotation> {
        if let [name] = path
            && let Some(class) = self.module.class(name)
        {
            return self.read_class(class);
        }
        match self.full_name(path).as_str() {
            "dict" | "typing.Dict" => Ok(SchemaKind::Object(ObjectSchema::default()).into()),
            "list" | "typing.List" => Ok(SchemaKind::Array(ArraySchema::default()).into()),
            "typing.Any" => Ok(SchemaKind::Any.into()),
            _ => Err(UnsupportedAnnotation::Annotation),
        }
    }

    fn read_extended_generic(
        &mut self,
        full: &str,
        items: &[ExpressionKind],
    ) -> Result<Schema, UnsupportedAnnotation> {
        match (full, items) {
            ("list" | "typing.List", [item]) => self.read(item).map(list_schema),
            ("typing.Optional", [item]) => self.read_nullable(item),
            ("typing.Union", [item, none]) if none.is_none() => self.read_nullable(item),
            ("typing.Union", [none, item]) if none.is_none() => self.read_nullable(item),
            ("typing.Annotated", [item, ..]) => self.read(item),
            ("typing.Literal", choices) => {
                literal_schema(choices).ok_or(UnsupportedAnnotation::Annotation)
            }
            ("dict" | "typing.Dict", [key, value]) => {
                let is_text = matches!(key, ExpressionKind::Name(path) if path == &["str"]);
                if !is_text {
                    return Err(UnsupportedAnnotation::Annotation);
                }
                let each = Box::new(self.read(value)?);
                let object = ObjectSchema {
                    properties: PropertyList::default(),
                    additional_properties: AdditionalProperties::Matching(each),
                };
                Ok(SchemaKind::Object(object).into())
            }
            _ => Err(UnsupportedAnnotation::Annotation),
        }
    }

    fn read_nullable(&mut self, form: &ExpressionKind) -> Result<Schema, UnsupportedAnnotation> {
        Ok(Schema { nullable: true, ..self.read(form)? })
    }

    fn read_class(&mut self, class: &'a PythonClass) -> Result<Schema, UnsupportedAnnotation> {
        if self.classes_in_progress.contains(&class.name.as_str()) {
            return Err(UnsupportedAnnotation::Recursive(class.name.clone()));
        }
        let mut lineage = self.inheritance_order(class)?;
        self.count_class_chars(lineage.len())?;
        let python = if self.is_dataclass(class) {
            lineage.retain(|class| self.is_dataclass(class));
            Some(PythonConversion::Dataclass(class.name.clone()))
        } else if lineage.iter().any(|class| self.is_typed_dict(class)) {
            None
        } else {
            return Err(UnsupportedAnnotation::Annotation);
        };
        self.classes_in_progress.push(&class.name);
        let properties = self.properties(&lineage);
        self.classes_in_progress.pop();
        let object = ObjectSchema {
            properties: properties?.into(),
            additional_properties: AdditionalProperties::Forbidden,
        };
        Ok(Schema { conversion: python, ..SchemaKind::Object(object).into() })
    }

    fn is_dataclass(&self, class: &PythonClass) -> bool {
        class.decorators.iter().any(|decorator| {
            let form = match &decorator.kind {
                ExpressionKind::Call { of, .. } => of.as_ref(),
                form => form,
            };
            self.resolves_to(form, "dataclasses.dataclass")
        })
    }

    fn is_typed_dict(&self, class: &PythonClass) -> bool {
        class.bases.iter().any(|base| self.resolves_to(&base.kind, "typing.TypedDict"))
    }

    fn resolves_to(&self, form: &ExpressionKind, full_name: &str) -> bool {
        matches!(form, ExpressionKind::Name(path) if self.full_name(path) == full_name)
    }

    /// The class of this module that a base refers to.
    fn base_class(&self, base: &SourceExpression) -> Option<&'a PythonClass> {
        match &base.kind {
            ExpressionKind::Name(path) => match path.as_slice() {
                [name] => self.module.class(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The class and its ancestors, each after its own bases, and the first of several bases last:
    /// later ones override, as in Python.
    fn inheritance_order(
        &self,
        class: &'a PythonClass,
    ) -> Result<Vec<&'a PythonClass>, UnsupportedAnnotation> {
        enum VisitStep<'a> {
            Enter(&'a PythonClass),
            Leave(&'a PythonClass),
        }
        let mut lineage = Vec::new();
        let (mut entered, mut left) = (BTreeSet::new(), BTreeSet::new());
        let mut steps = vec![VisitStep::Enter(class)];
        while let Some(step) = steps.pop() {
            match step {
                VisitStep::Leave(class) => {
                    left.insert(&class.name);
                    lineage.push(class);
                }
                VisitStep::Enter(class) if left.contains(&class.name) => {}
                VisitStep::Enter(class) if !entered.insert(&class.name) => {
                    return Err(UnsupportedAnnotation::Recursive(class.name.clone()));
                }
                VisitStep::Enter(class) => {
                    steps.push(VisitStep::Leave(class));
                    let bases = class.bases.iter().filter_map(|base| self.base_class(base));
                    steps.extend(bases.map(VisitStep::Enter));
                }
            }
        }
        Ok(lineage)
    }

    fn properties(
        &mut self,
        lineage: &[&'a PythonClass],
    ) -> Result<Vec<PropertySchema>, UnsupportedAnnotation> {
        let mut properties: Vec<PropertySchema> = Vec::new();
        for class in lineage {
            let total = !class.keywords.iter().any(|(name, value)| {
                name == "total" && matches!(value.kind, ExpressionKind::Literal(Value::Bool(false)))
            });
            for field in &class.fields {
                let default = field.default.as_ref().map_or(0, |default| default.text.len());
                self.count_class_chars(field.name.len() + field.annotation.text.len() + default)?;
                let Some(property) = self.property(class, field, total)? else { continue };
                match properties.iter_mut().find(|other| other.name == property.name) {
                    Some(inherited) => *inherited = property,
                    None => properties.push(property),
                }
            }
        }
        Ok(properties)
    }

    fn property(
        &mut self,
        class: &PythonClass,
        field: &ClassField,
        total: bool,
    ) -> Result<Option<PropertySchema>, UnsupportedAnnotation> {
        let (form, required) = self.strip_qualifier(&field.annotation.kind, total);
        let is_of_class = ["typing.ClassVar", "dataclasses.KW_ONLY"]
            .into_iter()
            .any(|name| self.resolves_to(form, name));
        let default = self.field_default(field);
        if is_of_class || default == FieldDefault::NotAnArgument {
            return Ok(None);
        }
        let mut schema = self.read(form).map_err(|reason| match reason {
            UnsupportedAnnotation::Annotation => UnsupportedAnnotation::Field {
                class: class.name.clone(),
                field: field.name.clone(),
                annotation: field.annotation.text.clone(),
            },
            other => other,
        })?;
        if let FieldDefault::Value(Some(value)) = &default {
            schema.default = schema.conform(value.clone()).ok();
        }
        let required = required && default == FieldDefault::Nothing;
        Ok(Some(PropertySchema { name: field.name.clone(), required, schema }))
    }

    /// The type inside `Required[…]` and similar qualifiers; a `ClassVar[…]` is a `ClassVar`.
    fn strip_qualifier<'f>(
        &self,
        form: &'f ExpressionKind,
        total: bool,
    ) -> (&'f ExpressionKind, bool) {
        if let ExpressionKind::Subscript { of, items } = form
            && let (ExpressionKind::Name(path), [item]) = (of.as_ref(), items.as_slice())
        {
            match self.full_name(path).as_str() {
                "typing.ClassVar" => return (of, total),
                "typing.Required" => return (item, true),
                "typing.NotRequired" => return (item, false),
                _ => {}
            }
        }
        (form, total)
    }

    fn field_default(&self, field: &ClassField) -> FieldDefault {
        let shown = |form: &ExpressionKind| match form {
            ExpressionKind::Literal(value) => Some(value.clone()),
            _ => None,
        };
        let Some(default) = &field.default else { return FieldDefault::Nothing };
        let ExpressionKind::Call { of, keywords } = &default.kind else {
            return FieldDefault::Value(shown(&default.kind));
        };
        if !self.resolves_to(of, "dataclasses.field") {
            return FieldDefault::Value(None);
        }
        let given = |name: &str| keywords.iter().find(|(other, _)| other == name);
        if matches!(given("init"), Some((_, ExpressionKind::Literal(Value::Bool(false))))) {
            return FieldDefault::NotAnArgument;
        }
        match (given("default"), given("default_factory")) {
            (Some((_, default)), _) => FieldDefault::Value(shown(default)),
            (None, Some(_)) => FieldDefault::Value(None),
            (None, None) => FieldDefault::Nothing,
        }
    }
}

/// The default of a dataclass field.
#[derive(PartialEq)]
enum FieldDefault {
    Nothing,
    /// As JSON, if a model can be shown it.
    Value(Option<Value>),
    /// The field is not an argument of the constructor.
    NotAnArgument,
}

fn float_schema() -> Schema {
    Schema::from(SchemaKind::Number(NumberBounds::default()))
        .with_conversion(PythonConversion::Float)
}

fn datetime_schema() -> Schema {
    Schema::from(SchemaKind::String { format: Some(SchemaFormat::DateTime) })
        .with_conversion(PythonConversion::Datetime)
}

fn node_id_schema() -> Schema {
    let text = |name: &str| PropertySchema {
        name: name.to_owned(),
        required: true,
        schema: SchemaKind::String { format: None }.into(),
    };
    let properties = vec![text("space"), text("externalId")];
    let object = ObjectSchema {
        properties: properties.into(),
        additional_properties: AdditionalProperties::ForbiddenImplicitly,
    };
    Schema::from(SchemaKind::Object(object)).with_conversion(PythonConversion::NodeId)
}

fn list_schema(items: Schema) -> Schema {
    SchemaKind::Array(ArraySchema { items: Some(Box::new(items)), ..ArraySchema::default() }).into()
}

/// Choices of one type, and optionally None.
fn literal_schema(choices: &[ExpressionKind]) -> Option<Schema> {
    let mut one_of = Vec::new();
    let mut nullable = false;
    for choice in choices.iter().take(CHOICES_MAX + 1) {
        match choice {
            ExpressionKind::Literal(Value::Null) => nullable = true,
            ExpressionKind::Literal(value) if one_of.contains(value) => {}
            ExpressionKind::Literal(value) => one_of.push(value.clone()),
            _ => return None,
        }
    }
    let kind = match one_of.first()? {
        Value::String(_) => SchemaKind::String { format: None },
        Value::Bool(_) => SchemaKind::Boolean,
        Value::Number(number) if !number.is_f64() => SchemaKind::Integer(NumberBounds::default()),
        _ => return None,
    };
    let alike = |value: &Value| match kind {
        SchemaKind::String { .. } => value.is_string(),
        SchemaKind::Boolean => value.is_boolean(),
        _ => value.is_i64() || value.is_u64(),
    };
    let fits = one_of.iter().all(alike) && choices.len() <= CHOICES_MAX;
    fits.then(|| Schema { one_of: one_of.into(), nullable, ..kind.into() })
}
