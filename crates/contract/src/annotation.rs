//! From a Python annotation to a schema.
//!
//! Strict is what the seed's tool takes, and people rely on what it refuses. Extended is for those
//! who ask for it: optional values, literals, dicts, typed dicts, dataclasses and lists of lists.

use crate::expression::{Form, Written};
use crate::python::{Class, Field, Module};
use crate::schema::{Array, Format, Kind, Object, Others, Property, Python, Range, Schema};
use serde_json::Value;

/// Which annotations are taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Annotations {
    #[default]
    Strict,
    Extended,
}

/// Classes that use each other twice make a schema that doubles with each: this is far more than
/// a model can read.
const SCHEMA_PARTS_MAX: usize = 2_000;

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
            Self::TooLarge => format!("{annotation} (more than {SCHEMA_PARTS_MAX} parts)"),
        }
    }
}

pub(crate) struct Reader<'a> {
    module: &'a Module,
    annotations: Annotations,
    /// The classes that are being read.
    open: Vec<&'a str>,
    parts: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(module: &'a Module, annotations: Annotations) -> Self {
        Self { module, annotations, open: Vec::new(), parts: 0 }
    }

    pub(crate) fn read(&mut self, form: &Form) -> Result<Schema, Unsupported> {
        self.parts += 1;
        if self.parts > SCHEMA_PARTS_MAX {
            return Err(Unsupported::TooLarge);
        }
        if let Some(schema) = self.plain(form) {
            return Ok(schema);
        }
        match self.annotations {
            Annotations::Strict => self.strict_list(form),
            Annotations::Extended => self.extended(form),
        }
    }

    /// What a name stands for, with the module that it was imported from.
    fn full_name(&self, path: &[String]) -> String {
        let (first, rest) = path.split_first().map_or(("", path), |(f, r)| (f.as_str(), r));
        let origin = self.module.imports.get(first).map_or(first, String::as_str);
        [origin].into_iter().chain(rest.iter().map(String::as_str)).collect::<Vec<_>>().join(".")
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
        let python = if self.is_dataclass(class) {
            Some(Python::Dataclass(class.name.clone()))
        } else if self.is_typed_dict(class) {
            None
        } else {
            return Err(Unsupported::Annotation);
        };
        self.open.push(&class.name);
        let properties = self.properties(class);
        self.open.pop();
        let object = Object { properties: properties?, others: Others::Nothing };
        Ok(Schema { python, ..Kind::Object(object).into() })
    }

    fn is_dataclass(&self, class: &Class) -> bool {
        class.decorators.iter().any(|decorator| {
            let form = match &decorator.form {
                Form::Call { of } => of.as_ref(),
                form => form,
            };
            matches!(form, Form::Name(path) if self.full_name(path) == "dataclasses.dataclass")
        })
    }

    fn is_typed_dict(&self, class: &'a Class) -> bool {
        let mut left = vec![class];
        let mut seen: Vec<&str> = Vec::new();
        while let Some(class) = left.pop() {
            if seen.contains(&class.name.as_str()) {
                continue;
            }
            seen.push(&class.name);
            for base in &class.bases {
                if let Form::Name(path) = &base.form
                    && matches!(
                        self.full_name(path).as_str(),
                        "typing.TypedDict" | "typing_extensions.TypedDict"
                    )
                {
                    return true;
                }
                left.extend(self.base(base));
            }
        }
        false
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

    /// Its own and those of its bases; a field that is declared again has its last declaration.
    fn properties(&mut self, class: &'a Class) -> Result<Vec<Property>, Unsupported> {
        let mut properties: Vec<Property> = Vec::new();
        for base in &class.bases {
            let Some(base) = self.base(base) else { continue };
            if self.open.contains(&base.name.as_str()) {
                return Err(Unsupported::Recursive(base.name.clone()));
            }
            self.open.push(&base.name);
            let inherited = self.properties(base);
            self.open.pop();
            properties.extend(inherited?);
        }
        let total = !class.keywords.iter().any(|(name, value)| {
            name == "total" && matches!(value.form, Form::Literal(Value::Bool(false)))
        });
        for field in &class.fields {
            let Some(property) = self.property(class, field, total)? else { continue };
            properties.retain(|other| other.name != property.name);
            properties.push(property);
        }
        Ok(properties)
    }

    fn property(
        &mut self,
        class: &Class,
        field: &Field,
        total: bool,
    ) -> Result<Option<Property>, Unsupported> {
        let (form, required) = match &field.annotation.form {
            Form::Subscript { of, items } => match (of.as_ref(), items.as_slice()) {
                (Form::Name(path), [item, ..]) => match self.full_name(path).as_str() {
                    "typing.ClassVar" => return Ok(None),
                    "typing.Required" => (item, true),
                    "typing.NotRequired" => (item, false),
                    _ => (&field.annotation.form, total),
                },
                _ => (&field.annotation.form, total),
            },
            form => (form, total),
        };
        let mut schema = self.read(form).map_err(|reason| match reason {
            Unsupported::Annotation => Unsupported::Field {
                class: class.name.clone(),
                field: field.name.clone(),
                annotation: field.annotation.text.clone(),
            },
            other => other,
        })?;
        if let Some(Form::Literal(default)) = field.default.as_ref().map(|default| &default.form) {
            schema.default = schema.conform(default.clone()).ok();
        }
        let required = required && field.default.is_none();
        Ok(Some(Property { name: field.name.clone(), required, schema }))
    }
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
    for choice in choices {
        match choice {
            Form::Literal(Value::Null) => nullable = true,
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
    let alike = one_of.iter().all(alike);
    alike.then(|| Schema { one_of, nullable, ..kind.into() })
}
