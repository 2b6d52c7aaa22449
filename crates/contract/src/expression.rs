//! Annotations and defaults: the expressions that a contract has to understand.

use crate::source::{Source, Span};
use ruff_python_ast::{Expr, Number, Operator, UnaryOp};
use serde_json::{Map, Value};

/// An expression and how it is written.
#[derive(Debug, Clone)]
pub(crate) struct Written {
    /// As `ast.unparse` would write it.
    pub(crate) text: String,
    pub(crate) span: Span,
    pub(crate) form: Form,
}

#[derive(Debug, Clone)]
pub(crate) enum Form {
    /// `a.b.c`
    Name(Vec<String>),
    /// `of[items]`
    Subscript {
        of: Box<Form>,
        items: Vec<Form>,
    },
    /// `a | b`
    Either(Box<Form>, Box<Form>),
    /// `of(...)`
    Call {
        of: Box<Form>,
    },
    /// A constant, or a list or dict of constants, that JSON can hold.
    Literal(Value),
    Other,
}

impl Written {
    pub(crate) fn read(tree: &Expr, source: &Source) -> Self {
        Self { text: unparse(tree, source), span: Span::of(tree), form: Form::read(tree) }
    }

    /// An annotation, of which a string says what is in it.
    pub(crate) fn annotation(tree: &Expr, source: &Source) -> Self {
        let written = Self::read(tree, source);
        let quoted = match &written.form {
            Form::Literal(Value::String(text)) => read_quoted(text),
            _ => None,
        };
        match quoted {
            Some((text, form)) => Self { text, form, ..written },
            None => written,
        }
    }
}

/// Bounded before it is parsed, like any other source.
fn read_quoted(text: &str) -> Option<(String, Form)> {
    let quoted = Source::new(text.trim()).ok()?;
    let parsed = ruff_python_parser::parse_expression(quoted.as_str()).ok()?;
    let tree = &parsed.syntax().body;
    Some((unparse(tree, &quoted), Form::read(tree)))
}

impl Form {
    /// What a string in the place of a type says.
    pub(crate) fn unquoted(&self) -> Option<Self> {
        let Self::Literal(Value::String(text)) = self else { return None };
        read_quoted(text).map(|(_, form)| form)
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::Literal(Value::Null))
    }

    fn read(tree: &Expr) -> Self {
        if let Some(literal) = literal(tree) {
            return Self::Literal(literal);
        }
        match tree {
            Expr::Name(_) | Expr::Attribute(_) => dotted(tree).map_or(Self::Other, Self::Name),
            Expr::Subscript(subscript) => {
                let of = Box::new(Self::read(&subscript.value));
                let items = match subscript.slice.as_ref() {
                    Expr::Tuple(tuple) => tuple.elts.as_slice(),
                    single => std::slice::from_ref(single),
                };
                let items = items.iter().map(Self::read).collect();
                Self::Subscript { of, items }
            }
            Expr::BinOp(operation) if operation.op == Operator::BitOr => Self::Either(
                Box::new(Self::read(&operation.left)),
                Box::new(Self::read(&operation.right)),
            ),
            Expr::Call(call) => Self::Call { of: Box::new(Self::read(&call.func)) },
            _ => Self::Other,
        }
    }
}

fn dotted(tree: &Expr) -> Option<Vec<String>> {
    match tree {
        Expr::Name(name) => Some(vec![name.id.to_string()]),
        Expr::Attribute(attribute) => {
            let mut path = dotted(&attribute.value)?;
            path.push(attribute.attr.to_string());
            Some(path)
        }
        _ => None,
    }
}

fn literal(tree: &Expr) -> Option<Value> {
    match tree {
        Expr::NoneLiteral(_) => Some(Value::Null),
        Expr::BooleanLiteral(literal) => Some(Value::Bool(literal.value)),
        Expr::StringLiteral(literal) => Some(literal.value.to_str().into()),
        Expr::NumberLiteral(literal) => number(&literal.value, 1),
        Expr::UnaryOp(operation) => {
            let Expr::NumberLiteral(literal) = operation.operand.as_ref() else { return None };
            match operation.op {
                UnaryOp::USub => number(&literal.value, -1),
                UnaryOp::UAdd => number(&literal.value, 1),
                UnaryOp::Invert | UnaryOp::Not => None,
            }
        }
        Expr::List(list) => list.elts.iter().map(literal).collect(),
        Expr::Dict(dict) => {
            let pair = |item: &ruff_python_ast::DictItem| {
                let key = item.key.as_ref()?.as_string_literal_expr()?.value.to_str().to_owned();
                Some((key, literal(&item.value)?))
            };
            dict.items.iter().map(pair).collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        _ => None,
    }
}

/// A number that JSON readers hold without loss.
fn number(number: &Number, sign: i64) -> Option<Value> {
    match number {
        Number::Int(int) if sign > 0 => int.as_u64().map(Value::from),
        Number::Int(int) => int.as_i64().map(|int| Value::from(-int)),
        Number::Float(float) => serde_json::Number::from_f64(float * sign as f64).map(Value::from),
        Number::Complex { .. } => None,
    }
}

/// As `ast.unparse` writes the forms that annotations have; anything else as it stands.
fn unparse(tree: &Expr, source: &Source) -> String {
    let list = |items: &[Expr]| {
        items.iter().map(|item| unparse(item, source)).collect::<Vec<_>>().join(", ")
    };
    match tree {
        Expr::Name(name) => name.id.to_string(),
        Expr::Attribute(attribute) => {
            format!("{}.{}", unparse(&attribute.value, source), attribute.attr)
        }
        Expr::Subscript(subscript) => {
            let items = match subscript.slice.as_ref() {
                Expr::Tuple(tuple) if !tuple.elts.is_empty() => list(&tuple.elts),
                slice => unparse(slice, source),
            };
            format!("{}[{items}]", unparse(&subscript.value, source))
        }
        Expr::BinOp(operation) if operation.op == Operator::BitOr => {
            format!("{} | {}", unparse(&operation.left, source), unparse(&operation.right, source))
        }
        Expr::List(items) => format!("[{}]", list(&items.elts)),
        Expr::StringLiteral(literal) => quote(literal.value.to_str()),
        Expr::NoneLiteral(_) => "None".to_owned(),
        Expr::EllipsisLiteral(_) => "...".to_owned(),
        _ => source.slice(Span::of(tree)).split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// As Python's `repr` has it.
fn quote(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::from(quote);
    for character in text.chars() {
        match character {
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            _ if character == quote => quoted.extend(['\\', character]),
            _ => quoted.push(character),
        }
    }
    quoted.push(quote);
    quoted
}
