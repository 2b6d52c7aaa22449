//! From a Python annotation to a schema.
//!
//! Strict is what the seed's tool takes, and people rely on what it refuses. Extended is for those
//! who ask for it: optional values, literals, dicts, typed dicts, dataclasses and lists of lists.

use crate::expression::{Form, Written};
use crate::python::{Class, Field, Module};
use crate::schema::{
    Array, CHOICES_MAX, DEPTH_MAX, Format, Kind, Object, Others, Property, Python, Range, Schema,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Which annotations are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Annotations {
    #[default]
    Strict,
    Extended,
}

const FUTURE: &str = "__future__.annotations";

/// Of the fields of classes, each time that they are used: classes that use each other twice
/// make a contract that doubles with each, and this is far more than a model can read.
const CLASSES_CHARS_MAX: usize = 64 * 1024;

/// Why an annotation has no schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Unsupported {
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

impl Unsupported {
    /// What stands after the name of the parameter.
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

/// Reads all the annotations of one contract, which is bounded as a whole.
pub(crate) struct Reader<'a> {
    module: &'a Module,
    annotations: Annotations,
    /// The classes that are being read.
    open: Vec<&'a str>,
    depth: usize,
    classes_chars: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(module: &'a Module, annotations: Annotations) -> Self {
        Self { module, annotations, open: Vec::new(), depth: 0, classes_chars: 0 }
    }

    pub(crate) fn read(&mut self, form: &Form) -> Result<Schema, Unsupported> {
        if self.depth == DEPTH_MAX {
            return Err(Unsupported::TooDeep);
        }
        self.depth += 1;
        let schema = match (self.plain(form), self.annotations) {
            (Some(schema), _) => Ok(schema),
            (None, Annotations::Strict) => self.strict_list(form),
            (None, Annotations::Extended) => self.extended(form),
        };
        self.depth -= 1;
        schema
    }

    fn spend(&mut self, chars: usize) -> Result<(), Unsupported> {
        self.classes_chars += chars;
        if self.classes_chars > CLASSES_CHARS_MAX { Err(Unsupported::TooLarge) } else { Ok(()) }
    }

    /// What a name stands for, with the module that it was imported from. What typing has now,
    /// typing_extensions had before.
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

    /// A name in the annotation that nothing in the module defines, if Python will ask for it.
    pub(crate) fn undefined(&self, form: &Form) -> Option<String> {
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
        let Module { imports, bound, classes, .. } = self.module;
        // Then annotations are not evaluated, or anything may be defined.
        if imports.contains_key("*") || imports.get("annotations").is_some_and(|of| of == FUTURE) {
            return None;
        }
        match form {
            Form::Name(path) => path.first().cloned().filter(|name| {
                !BUILT_IN.contains(&name.as_str())
                    && !imports.contains_key(name)
                    && !bound.contains(name)
                    && !classes.contains_key(name)
            }),
            Form::Subscript { of, items } => {
                self.undefined(of).or_else(|| items.iter().find_map(|item| self.undefined(item)))
            }
            Form::Either(left, right) => self.undefined(left).or_else(|| self.undefined(right)),
            Form::Call { .. } | Form::Literal(_) | Form::Other => None,
        }
    }

    fn plain(&self, form: &Form) -> Option<Schema> {
        let Form::Name(path) = form else { return None };
        if let [name] = path.as_slice() {
            if self.module.class(name).is_some() {
                return None;
            }
            let kind = match name.as_str() {
                "str" => Some(Kind::String { format: None }),
                "int" => Some(Kind::Integer(Range::default())),
                "bool" => Some(Kind::Boolean),
                "float" => return Some(float()),
                "datetime" => return Some(datetime()),
                _ => None,
            };
            if let Some(kind) = kind {
                return Some(kind.into());
            }
        }
        let full = self.full_name(path);
        if full == "datetime.datetime" {
            return Some(datetime());
        }
        (full == "NodeId" || full.ends_with(".NodeId")).then(node_id)
    }

    fn is_list(&self, form: &Form) -> bool {
        let Form::Name(path) = form else { return false };
        let full = self.full_name(path);
        full == "list" || self.annotations == Annotations::Extended && full == "typing.List"
    }

    fn strict_list(&mut self, form: &Form) -> Result<Schema, Unsupported> {
        let Form::Subscript { of, items } = form else { return Err(Unsupported::Annotation) };
        let [item] = items.as_slice() else { return Err(Unsupported::Annotation) };
        if !self.is_list(of) {
            return Err(Unsupported::Annotation);
        }
        let unquoted = item.unquoted();
        let item = unquoted.as_ref().unwrap_or(item);
        let is_nested = match item {
            Form::Subscript { of, .. } => self.is_list(of),
            other => self.is_list(other),
        };
        if is_nested {
            return Err(Unsupported::NestedList);
        }
        self.plain(item).map(list_of).ok_or(Unsupported::Annotation)
    }

    fn extended(&mut self, form: &Form) -> Result<Schema, Unsupported> {
        match form {
            Form::Name(path) => self.extended_name(path),
            Form::Subscript { of, items } => match of.as_ref() {
                Form::Name(path) => {
                    let full = self.full_name(path);
                    self.extended_generic(&full, items)
                }
                _ => Err(Unsupported::Annotation),
            },
            Form::Either(left, right) if right.is_none() => self.nullable(left),
            Form::Either(left, right) if left.is_none() => self.nullable(right),
            Form::Literal(Value::String(_)) => {
                let unquoted = form.unquoted().ok_or(Unsupported::Annotation)?;
                // A string in a string would be read again and again.
                if matches!(unquoted, Form::Literal(_)) {
                    return Err(Unsupported::Annotation);
                }
                self.read(&unquoted)
            }
            Form::Either(..) | Form::Call { .. } | Form::Literal(_) | Form::Other => {
                Err(Unsupported::Annotation)
            }
        }
    }

    fn extended_name(&mut self, path: &[String]) -> Result<Schema, Unsupported> {
        if let [name] = path
            && let Some(class) = self.module.class(name)
        {
            return self.class(class);
        }
        match self.full_name(path).as_str() {
            "dict" | "typing.Dict" => Ok(Kind::Object(Object::default()).into()),
            "list" | "typing.List" => Ok(Kind::Array(Array::default()).into()),
            "typing.Any" => Ok(Kind::Any.into()),
            _ => Err(Unsupported::Annotation),
        }
    }

    fn extended_generic(&mut self, full: &str, items: &[Form]) -> Result<Schema, Unsupported> {
        match (full, items) {
            ("list" | "typing.List", [item]) => self.read(item).map(list_of),
            ("typing.Optional", [item]) => self.nullable(item),
            ("typing.Union", [item, none]) if none.is_none() => self.nullable(item),
            ("typing.Union", [none, item]) if none.is_none() => self.nullable(item),
            ("typing.Annotated", [item, ..]) => self.read(item),
            ("typing.Literal", choices) => literal(choices).ok_or(Unsupported::Annotation),
            ("dict" | "typing.Dict", [key, value]) => {
                let is_text = matches!(key, Form::Name(path) if path == &["str"]);
                if !is_text {
                    return Err(Unsupported::Annotation);
                }
                let each = Box::new(self.read(value)?);
                let object = Object { properties: Vec::new(), others: Others::Each(each) };
                Ok(Kind::Object(object).into())
            }
            _ => Err(Unsupported::Annotation),
        }
    }

    fn nullable(&mut self, form: &Form) -> Result<Schema, Unsupported> {
        Ok(Schema { nullable: true, ..self.read(form)? })
    }

    fn class(&mut self, class: &'a Class) -> Result<Schema, Unsupported> {
        if self.open.contains(&class.name.as_str()) {
            return Err(Unsupported::Recursive(class.name.clone()));
        }
        let mut lineage = self.lineage(class)?;
        self.spend(lineage.len())?;
        let python = if self.is_dataclass(class) {
            lineage.retain(|class| self.is_dataclass(class));
            Some(Python::Dataclass(class.name.clone()))
        } else if lineage.iter().any(|class| self.is_typed_dict(class)) {
            None
        } else {
            return Err(Unsupported::Annotation);
        };
        self.open.push(&class.name);
        let properties = self.properties(&lineage);
        self.open.pop();
        let object = Object { properties: properties?, others: Others::Nothing };
        Ok(Schema { python, ..Kind::Object(object).into() })
    }

    fn is_dataclass(&self, class: &Class) -> bool {
        class.decorators.iter().any(|decorator| {
            let form = match &decorator.form {
                Form::Call { of, .. } => of.as_ref(),
                form => form,
            };
            self.is_named(form, "dataclasses.dataclass")
        })
    }

    fn is_typed_dict(&self, class: &Class) -> bool {
        class.bases.iter().any(|base| self.is_named(&base.form, "typing.TypedDict"))
    }

    fn is_named(&self, form: &Form, full_name: &str) -> bool {
        matches!(form, Form::Name(path) if self.full_name(path) == full_name)
    }

    /// The class of this module that stands among the bases of another.
    fn base(&self, base: &Written) -> Option<&'a Class> {
        match &base.form {
            Form::Name(path) => match path.as_slice() {
                [name] => self.module.class(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The class and all that it inherits from, each after its own bases and, of several bases,
    /// the first one last: whoever comes later overrides, as in Python.
    fn lineage(&self, class: &'a Class) -> Result<Vec<&'a Class>, Unsupported> {
        enum Step<'a> {
            Enter(&'a Class),
            Leave(&'a Class),
        }
        let mut lineage = Vec::new();
        let (mut entered, mut left) = (BTreeSet::new(), BTreeSet::new());
        let mut steps = vec![Step::Enter(class)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Leave(class) => {
                    left.insert(&class.name);
                    lineage.push(class);
                }
                Step::Enter(class) if left.contains(&class.name) => {}
                Step::Enter(class) if !entered.insert(&class.name) => {
                    return Err(Unsupported::Recursive(class.name.clone()));
                }
                Step::Enter(class) => {
                    steps.push(Step::Leave(class));
                    let bases = class.bases.iter().filter_map(|base| self.base(base));
                    steps.extend(bases.map(Step::Enter));
                }
            }
        }
        Ok(lineage)
    }

    fn properties(&mut self, lineage: &[&'a Class]) -> Result<Vec<Property>, Unsupported> {
        let mut properties: Vec<Property> = Vec::new();
        for class in lineage {
            let total = !class.keywords.iter().any(|(name, value)| {
                name == "total" && matches!(value.form, Form::Literal(Value::Bool(false)))
            });
            for field in &class.fields {
                let default = field.default.as_ref().map_or(0, |default| default.text.len());
                self.spend(field.name.len() + field.annotation.text.len() + default)?;
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
        class: &Class,
        field: &Field,
        total: bool,
    ) -> Result<Option<Property>, Unsupported> {
        let (form, required) = self.unwrapped(&field.annotation.form, total);
        let is_of_class = ["typing.ClassVar", "dataclasses.KW_ONLY"]
            .into_iter()
            .any(|name| self.is_named(form, name));
        let default = self.field_default(field);
        if is_of_class || default == FieldDefault::NoArgument {
            return Ok(None);
        }
        let mut schema = self.read(form).map_err(|reason| match reason {
            Unsupported::Annotation => Unsupported::Field {
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
        Ok(Some(Property { name: field.name.clone(), required, schema }))
    }

    /// What is in `Required[…]` and its like; a `ClassVar[…]` is a `ClassVar`.
    fn unwrapped<'f>(&self, form: &'f Form, total: bool) -> (&'f Form, bool) {
        if let Form::Subscript { of, items } = form
            && let (Form::Name(path), [item]) = (of.as_ref(), items.as_slice())
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

    fn field_default(&self, field: &Field) -> FieldDefault {
        let shown = |form: &Form| match form {
            Form::Literal(value) => Some(value.clone()),
            _ => None,
        };
        let Some(default) = &field.default else { return FieldDefault::Nothing };
        let Form::Call { of, keywords } = &default.form else {
            return FieldDefault::Value(shown(&default.form));
        };
        if !self.is_named(of, "dataclasses.field") {
            return FieldDefault::Value(None);
        }
        let given = |name: &str| keywords.iter().find(|(other, _)| other == name);
        if matches!(given("init"), Some((_, Form::Literal(Value::Bool(false))))) {
            return FieldDefault::NoArgument;
        }
        match (given("default"), given("default_factory")) {
            (Some((_, default)), _) => FieldDefault::Value(shown(default)),
            (None, Some(_)) => FieldDefault::Value(None),
            (None, None) => FieldDefault::Nothing,
        }
    }
}

/// What a field of a dataclass is when it is left out.
#[derive(PartialEq)]
enum FieldDefault {
    Nothing,
    /// As JSON, if it is one that a model can be shown.
    Value(Option<Value>),
    /// It cannot be given either.
    NoArgument,
}

fn float() -> Schema {
    Schema::from(Kind::Number(Range::default())).becomes(Python::Float)
}

fn datetime() -> Schema {
    Schema::from(Kind::String { format: Some(Format::DateTime) }).becomes(Python::Datetime)
}

fn node_id() -> Schema {
    let text = |name: &str| Property {
        name: name.to_owned(),
        required: true,
        schema: Kind::String { format: None }.into(),
    };
    let properties = vec![text("space"), text("externalId")];
    let object = Object { properties, others: Others::NothingUnsaid };
    Schema::from(Kind::Object(object)).becomes(Python::NodeId)
}

fn list_of(items: Schema) -> Schema {
    Kind::Array(Array { items: Some(Box::new(items)), ..Array::default() }).into()
}

/// Choices of one type, and perhaps None.
fn literal(choices: &[Form]) -> Option<Schema> {
    let mut one_of = Vec::new();
    let mut nullable = false;
    for choice in choices.iter().take(CHOICES_MAX + 1) {
        match choice {
            Form::Literal(Value::Null) => nullable = true,
            Form::Literal(value) if one_of.contains(value) => {}
            Form::Literal(value) => one_of.push(value.clone()),
            _ => return None,
        }
    }
    let kind = match one_of.first()? {
        Value::String(_) => Kind::String { format: None },
        Value::Bool(_) => Kind::Boolean,
        Value::Number(number) if !number.is_f64() => Kind::Integer(Range::default()),
        _ => return None,
    };
    let alike = |value: &Value| match kind {
        Kind::String { .. } => value.is_string(),
        Kind::Boolean => value.is_boolean(),
        _ => value.is_i64() || value.is_u64(),
    };
    let fits = one_of.iter().all(alike) && choices.len() <= CHOICES_MAX;
    fits.then(|| Schema { one_of, nullable, ..kind.into() })
}
