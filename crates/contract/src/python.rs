//! Python source as far as a contract needs it: the top level of a module.
//!
//! Only this module, [`crate::expression`] and [`crate::imports`] know the parser's tree.

use crate::diagnostic::Diagnostic;
use crate::expression::SourceExpression;
use crate::source::{PythonSource, Span, with_parser_stack};
use ruff_python_ast::statement_visitor::{StatementVisitor, walk_stmt};
use ruff_python_ast::{
    Expr, ParameterWithDefault, Stmt, StmtClassDef, StmtFunctionDef, StmtImport, StmtImportFrom,
};
use std::collections::{BTreeMap, BTreeSet};
use types::ErrorCode;

const NOT_PYTHON: &str = "Failed to parse Python code. Check that the code is valid Python code.";

#[derive(Debug, Default)]
pub(crate) struct PythonModule {
    /// Functions of the top level, in order.
    pub(crate) functions: Vec<PythonFunction>,
    /// Functions nested inside other statements.
    pub(crate) nested_functions: Vec<(String, Span)>,
    /// Classes of the top level; of two with one name the last, as in Python.
    pub(crate) classes: BTreeMap<String, PythonClass>,
    /// Names that are bound at the top level other than by a definition.
    pub(crate) bound_names: BTreeSet<String>,
    /// The target of an imported name: `dt` for `datetime`.
    pub(crate) imports: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct PythonFunction {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) parameters: Vec<PythonParameter>,
    /// `*args` and `**kwargs`, as they are written.
    pub(crate) variadic: Vec<(String, Span)>,
    pub(crate) docstring: Option<Docstring>,
}

#[derive(Debug)]
pub(crate) struct PythonParameter {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) annotation: Option<SourceExpression>,
    pub(crate) default: Option<SourceExpression>,
    pub(crate) keyword_only: bool,
}

#[derive(Debug)]
pub(crate) struct Docstring {
    pub(crate) text: String,
    /// Including its quotes.
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct PythonClass {
    pub(crate) name: String,
    pub(crate) decorators: Vec<SourceExpression>,
    pub(crate) bases: Vec<SourceExpression>,
    /// For example `total=False` of a `TypedDict`.
    pub(crate) keywords: Vec<(String, SourceExpression)>,
    /// Annotated names of its body.
    pub(crate) fields: Vec<ClassField>,
}

#[derive(Debug)]
pub(crate) struct ClassField {
    pub(crate) name: String,
    pub(crate) annotation: SourceExpression,
    pub(crate) default: Option<SourceExpression>,
}

impl PythonModule {
    pub(crate) fn parse(source: &PythonSource) -> Result<Self, Diagnostic> {
        with_parser_stack(|| Self::read(source))
    }

    fn read(source: &PythonSource) -> Result<Self, Diagnostic> {
        let parsed = ruff_python_parser::parse_module(source.as_str()).map_err(|error| {
            let hint = error.error.to_string();
            Diagnostic::new(ErrorCode::CodeSyntax, NOT_PYTHON)
                .with_location(source.location(error.location.into()))
                .with_hint(hint)
        })?;
        let mut module = Self::default();
        for statement in &parsed.syntax().body {
            module.add_statement(statement, source);
        }
        Ok(module)
    }

    /// The last function of that name, as in Python.
    pub(crate) fn function(&self, name: &str) -> Option<&PythonFunction> {
        self.functions.iter().rfind(|function| function.name == name)
    }

    pub(crate) fn class(&self, name: &str) -> Option<&PythonClass> {
        self.classes.get(name)
    }

    fn add_statement(&mut self, statement: &Stmt, source: &PythonSource) {
        match statement {
            Stmt::FunctionDef(function) => {
                self.functions.push(PythonFunction::read(function, source))
            }
            Stmt::ClassDef(class) => {
                self.classes.insert(class.name.to_string(), PythonClass::read(class, source));
            }
            _ => {}
        }
        NestedScopeVisitor { module: self, scope: ScopeKind::Top }.visit_stmt(statement);
    }

    fn bind_target(&mut self, target: &Expr) {
        if let Some(name) = target.as_name_expr() {
            self.bound_names.insert(name.id.to_string());
        }
    }

    fn add_import(&mut self, import: &StmtImport) {
        for alias in &import.names {
            let full = alias.name.as_str();
            let root = full.split('.').next().unwrap_or(full);
            let (name, origin) = match &alias.asname {
                Some(name) => (name.as_str(), full),
                None => (root, root),
            };
            self.bound_names.insert(name.to_owned());
            self.imports.insert(name.to_owned(), origin.to_owned());
        }
    }

    fn add_import_from(&mut self, import: &StmtImportFrom) {
        let module = import.module.as_ref().map_or("", |module| module.as_str());
        for alias in &import.names {
            let name = alias.asname.as_ref().unwrap_or(&alias.name).to_string();
            self.bound_names.insert(name.clone());
            self.imports.insert(name, format!("{module}.{}", alias.name));
        }
    }
}

/// Visits nested statements: it finds names that are bound conditionally, and functions that their
/// author may expect at the top level.
struct NestedScopeVisitor<'a> {
    module: &'a mut PythonModule,
    scope: ScopeKind,
}

#[derive(Clone, Copy, PartialEq)]
enum ScopeKind {
    Top,
    /// In an `if`, a `try` or similar, whose names belong to the module.
    Block,
    /// In a function or a class, which has its own names.
    Body,
}

impl StatementVisitor<'_> for NestedScopeVisitor<'_> {
    fn visit_stmt(&mut self, statement: &Stmt) {
        let place = self.scope;
        if let Stmt::FunctionDef(function) = statement
            && place != ScopeKind::Top
        {
            let hidden = (function.name.to_string(), Span::of(&function.name));
            self.module.nested_functions.push(hidden);
        }
        if place != ScopeKind::Body {
            self.bind_names(statement);
        }
        let is_body = matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_));
        self.scope =
            if is_body || place == ScopeKind::Body { ScopeKind::Body } else { ScopeKind::Block };
        walk_stmt(self, statement);
        self.scope = place;
    }
}

impl NestedScopeVisitor<'_> {
    fn bind_names(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Import(import) => self.module.add_import(import),
            Stmt::ImportFrom(import) => self.module.add_import_from(import),
            Stmt::Assign(assign) => {
                assign.targets.iter().for_each(|target| self.module.bind_target(target));
            }
            Stmt::AnnAssign(assign) if assign.value.is_some() => {
                self.module.bind_target(&assign.target)
            }
            Stmt::FunctionDef(function) if self.scope == ScopeKind::Block => {
                self.module.bound_names.insert(function.name.to_string());
            }
            _ => {}
        }
    }
}

impl PythonFunction {
    fn read(function: &StmtFunctionDef, source: &PythonSource) -> Self {
        let parameters = &function.parameters;
        let positional = parameters.posonlyargs.iter().chain(&parameters.args);
        let read = |parameter: &ParameterWithDefault, keyword_only: bool| PythonParameter {
            name: parameter.name().to_string(),
            span: Span::of(&parameter.parameter),
            annotation: parameter.annotation().map(|it| SourceExpression::annotation(it, source)),
            default: parameter.default().map(|it| SourceExpression::read(it, source)),
            keyword_only,
        };
        let variadic = [("*", &parameters.vararg), ("**", &parameters.kwarg)];
        Self {
            name: function.name.to_string(),
            span: Span::of(&function.name),
            parameters: positional
                .map(|parameter| read(parameter, false))
                .chain(parameters.kwonlyargs.iter().map(|parameter| read(parameter, true)))
                .collect(),
            variadic: variadic
                .into_iter()
                .filter_map(|(stars, parameter)| {
                    let parameter = parameter.as_ref()?;
                    Some((format!("{stars}{}", parameter.name), Span::of(parameter.as_ref())))
                })
                .collect(),
            docstring: read_docstring(&function.body),
        }
    }
}

fn read_docstring(body: &[Stmt]) -> Option<Docstring> {
    let literal = body.first()?.as_expr_stmt()?.value.as_string_literal_expr()?;
    Some(Docstring { text: literal.value.to_str().to_owned(), span: Span::of(literal) })
}

impl PythonClass {
    fn read(class: &StmtClassDef, source: &PythonSource) -> Self {
        let arguments = class.arguments.as_deref();
        let bases = arguments.map_or(&[][..], |arguments| &arguments.args);
        let keywords = arguments.map_or(&[][..], |arguments| arguments.keywords.as_slice());
        let decorators = class.decorator_list.iter();
        Self {
            name: class.name.to_string(),
            decorators: decorators
                .map(|it| SourceExpression::read(&it.expression, source))
                .collect(),
            bases: bases.iter().map(|base| SourceExpression::read(base, source)).collect(),
            keywords: keywords
                .iter()
                .filter_map(|keyword| {
                    let name = keyword.arg.as_ref()?.to_string();
                    Some((name, SourceExpression::read(&keyword.value, source)))
                })
                .collect(),
            fields: class
                .body
                .iter()
                .filter_map(|statement| ClassField::read(statement, source))
                .collect(),
        }
    }
}

impl ClassField {
    fn read(statement: &Stmt, source: &PythonSource) -> Option<Self> {
        let annotated = statement.as_ann_assign_stmt()?;
        Some(Self {
            name: annotated.target.as_name_expr()?.id.to_string(),
            annotation: SourceExpression::annotation(&annotated.annotation, source),
            default: annotated.value.as_deref().map(|value| SourceExpression::read(value, source)),
        })
    }
}
