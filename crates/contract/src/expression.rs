//! Annotations and defaults: the expressions that a contract understands.

use crate::schema::DEPTH_MAX;
use crate::source::{PythonSource, Span, with_parser_stack};
use ruff_python_ast::{Expr, Number, Operator, UnaryOp};
use serde_json::{Map, Value};

/// An expression and its text.
#[derive(Debug, Clone)]
pub(crate) struct SourceExpression {
    /// In the notation of `ast.unparse`.
    pub(crate) text: String,
    pub(crate) span: Span,
    pub(crate) kind: ExpressionKind,
}

#[derive(Debug, Clone)]
pub(crate) enum ExpressionKind {
    /// `a.b.c`
    Name(Vec<String>),
    /// `of[items]`
    Subscript {
        of: Box<ExpressionKind>,
        items: Vec<ExpressionKind>,
    },
    /// `a | b`
    Union(Box<ExpressionKind>, Box<ExpressionKind>),
    /// `of(name=value)`
    Call {
        of: Box<ExpressionKind>,
        keywords: Vec<(String, ExpressionKind)>,
    },
    /// A constant, or a list or dict of constants, that JSON can represent.
    Literal(Value),
    Other,
}

impl SourceExpression {
    pub(crate) fn read(tree: &Expr, source: &PythonSource) -> Self {
        Self {
            text: unparse(tree, source),
            span: Span::of(tree),
            kind: ExpressionKind::from_tree(tree),
        }
    }

    /// An annotation; a string is parsed as one.
    pub(crate) fn annotation(tree: &Expr, source: &PythonSource) -> Self {
        let written = Self::read(tree, source);
        let quoted = match &written.kind {
            ExpressionKind::Literal(Value::String(text)) => parse_quoted(text),
            _ => None,
        };
        match quoted {
            Some((text, form)) => Self { text, kind: form, ..written },
            None => written,
        }
    }
}

/// Checks the limits before parsing, as for any other source.
fn parse_quoted(text: &str) -> Option<(String, ExpressionKind)> {
    let quoted = PythonSource::new(text.trim()).ok()?;
    with_parser_stack(|| {
        let parsed = ruff_python_parser::parse_expression(quoted.as_str()).ok()?;
        let tree = &parsed.syntax().body;
        Some((unparse(tree, &quoted), ExpressionKind::from_tree(tree)))
    })
}

impl ExpressionKind {
    /// The parsed content of a string in place of a type.
    pub(crate) fn unquoted(&self) -> Option<Self> {
        let Self::Literal(Value::String(text)) = self else { return None };
        parse_quoted(text).map(|(_, form)| form)
    }

    pub(crate) fn is_none(&self) -> bool {
        matches!(self, Self::Literal(Value::Null))
    }

    fn from_tree(tree: &Expr) -> Self {
        Self::read(tree, 0)
    }

    fn read(tree: &Expr, depth: usize) -> Self {
        if depth > DEPTH_MAX {
            return Self::Other;
        }
        if let Some(literal) = json_literal(tree, depth) {
            return Self::Literal(literal);
        }
        let inside = |tree: &Expr| Self::read(tree, depth + 1);
        match tree {
            Expr::Name(_) | Expr::Attribute(_) => dotted_name(tree).map_or(Self::Other, Self::Name),
            Expr::Subscript(subscript) => {
                let of = Box::new(inside(&subscript.value));
                let items = match subscript.slice.as_ref() {
                    Expr::Tuple(tuple) => tuple.elts.as_slice(),
                    single => std::slice::from_ref(single),
                };
                Self::Subscript { of, items: items.iter().map(inside).collect() }
            }
            Expr::BinOp(operation) if operation.op == Operator::BitOr => {
                Self::Union(Box::new(inside(&operation.left)), Box::new(inside(&operation.right)))
            }
            Expr::Call(call) => {
                let keywords = call.arguments.keywords.iter();
                let keywords = keywords.filter_map(|keyword| {
                    Some((keyword.arg.as_ref()?.to_string(), inside(&keyword.value)))
                });
                Self::Call { of: Box::new(inside(&call.func)), keywords: keywords.collect() }
            }
            _ => Self::Other,
        }
    }
}

fn dotted_name(mut tree: &Expr) -> Option<Vec<String>> {
    let mut path = Vec::new();
    while let Expr::Attribute(attribute) = tree {
        path.push(attribute.attr.to_string());
        tree = &attribute.value;
    }
    path.push(tree.as_name_expr()?.id.to_string());
    path.reverse();
    Some(path)
}

fn json_literal(tree: &Expr, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return None;
    }
    let inside = |tree: &Expr| json_literal(tree, depth + 1);
    match tree {
        Expr::NoneLiteral(_) => Some(Value::Null),
        Expr::BooleanLiteral(literal) => Some(Value::Bool(literal.value)),
        Expr::StringLiteral(literal) => Some(literal.value.to_str().into()),
        Expr::NumberLiteral(literal) => json_number(&literal.value, UnaryOp::UAdd),
        Expr::UnaryOp(operation) => {
            let literal = operation.operand.as_number_literal_expr()?;
            json_number(&literal.value, operation.op)
        }
        Expr::List(list) => list.elts.iter().map(inside).collect(),
        Expr::Dict(dict) => {
            let pair = |item: &ruff_python_ast::DictItem| {
                let key = item.key.as_ref()?.as_string_literal_expr()?.value.to_str().to_owned();
                Some((key, inside(&item.value)?))
            };
            dict.items.iter().map(pair).collect::<Option<Map<_, _>>>().map(Value::Object)
        }
        _ => None,
    }
}

/// A number that JSON parsers hold without loss.
fn json_number(number: &Number, sign: UnaryOp) -> Option<Value> {
    match (number, sign) {
        (Number::Int(int), UnaryOp::UAdd) => int.as_u64().map(Value::from),
        (Number::Int(int), UnaryOp::USub) => {
            0i64.checked_sub_unsigned(int.as_u64()?).map(Value::from)
        }
        (Number::Float(float), UnaryOp::UAdd) => json_float(*float),
        (Number::Float(float), UnaryOp::USub) => json_float(-float),
        _ => None,
    }
}

fn json_float(float: f64) -> Option<Value> {
    serde_json::Number::from_f64(float).map(Value::from)
}

/// The notation of `ast.unparse` for the expressions of annotations; anything else unchanged.
fn unparse(tree: &Expr, source: &PythonSource) -> String {
    let mut text = String::new();
    unparse_into(&mut text, tree, source, 0);
    text
}

fn unparse_into(text: &mut String, tree: &Expr, source: &PythonSource, depth: usize) {
    let inside = |text: &mut String, tree: &Expr| unparse_into(text, tree, source, depth + 1);
    let list = |text: &mut String, items: &[Expr]| {
        for (at, item) in items.iter().enumerate() {
            text.push_str(if at == 0 { "" } else { ", " });
            inside(text, item);
        }
    };
    match tree {
        _ if depth > DEPTH_MAX => push_verbatim(text, tree, source),
        Expr::Name(name) => text.push_str(&name.id),
        Expr::Attribute(attribute) => {
            inside(text, &attribute.value);
            text.push('.');
            text.push_str(&attribute.attr);
        }
        Expr::Subscript(subscript) => {
            inside(text, &subscript.value);
            text.push('[');
            match subscript.slice.as_ref() {
                Expr::Tuple(tuple) if !tuple.elts.is_empty() => list(text, &tuple.elts),
                slice => inside(text, slice),
            }
            text.push(']');
        }
        Expr::BinOp(operation) if operation.op == Operator::BitOr => {
            inside(text, &operation.left);
            text.push_str(" | ");
            inside(text, &operation.right);
        }
        Expr::List(items) => {
            text.push('[');
            list(text, &items.elts);
            text.push(']');
        }
        Expr::StringLiteral(literal) => text.push_str(&python_repr(literal.value.to_str())),
        Expr::NoneLiteral(_) => text.push_str("None"),
        Expr::EllipsisLiteral(_) => text.push_str("..."),
        _ => push_verbatim(text, tree, source),
    }
}

fn push_verbatim(text: &mut String, tree: &Expr, source: &PythonSource) {
    for (at, word) in source.slice(Span::of(tree)).split_whitespace().enumerate() {
        text.push_str(if at == 0 { "" } else { " " });
        text.push_str(word);
    }
}

/// In the notation of Python's `repr`.
fn python_repr(text: &str) -> String {
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
