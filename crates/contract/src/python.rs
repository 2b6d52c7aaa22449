//! Python source as far as a contract needs it: what stands at the top level of a module.
//!
//! This, [`crate::expression`] and [`crate::imports`] are the modules that know the parser's tree, which
//! does not leave them.

use crate::expression::Written;
use crate::problem::Problem;
use crate::source::{Source, Span, with_tree};
use ruff_python_ast::statement_visitor::{StatementVisitor, walk_stmt};
use ruff_python_ast::{
    Expr, ParameterWithDefault, Stmt, StmtClassDef, StmtFunctionDef, StmtImport, StmtImportFrom,
};
use std::collections::{BTreeMap, BTreeSet};
use types::Code;

const NOT_PYTHON: &str = "Failed to parse Python code. Check that the code is valid Python code.";

#[derive(Debug, Default)]
pub(crate) struct Module {
    /// Of the top level, in their order.
    pub(crate) functions: Vec<Function>,
    /// Functions that are inside of something else.
    pub(crate) hidden: Vec<(String, Span)>,
    /// Of the top level; of two with one name the last, as Python has it.
    pub(crate) classes: BTreeMap<String, Class>,
    /// Names that something else than a definition at the top was bound to.
    pub(crate) bound: BTreeSet<String>,
    /// What an imported name stands for: `dt` for `datetime`.
    pub(crate) imports: BTreeMap<String, String>,
}

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) parameters: Vec<Parameter>,
    /// `*args` and `**kwargs`, as they are written.
    pub(crate) variadic: Vec<(String, Span)>,
    pub(crate) docstring: Option<Docstring>,
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) annotation: Option<Written>,
    pub(crate) default: Option<Written>,
    pub(crate) keyword_only: bool,
}

#[derive(Debug)]
pub(crate) struct Docstring {
    pub(crate) text: String,
    /// With its quotes.
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) decorators: Vec<Written>,
    pub(crate) bases: Vec<Written>,
    /// `total=False` of a `TypedDict`.
    pub(crate) keywords: Vec<(String, Written)>,
    /// Annotated names of its body.
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) annotation: Written,
    pub(crate) default: Option<Written>,
}

impl Module {
    pub(crate) fn parse(source: &Source) -> Result<Self, Problem> {
        with_tree(|| Self::read(source))
    }

    fn read(source: &Source) -> Result<Self, Problem> {
        let parsed = ruff_python_parser::parse_module(source.as_str()).map_err(|error| {
            let hint = error.error.to_string();
            Problem::new(Code::CodeSyntax, NOT_PYTHON)
                .at(source.place(error.location.into()))
                .hint(hint)
        })?;
        let mut module = Self::default();
        for statement in &parsed.syntax().body {
            module.take(statement, source);
        }
        Ok(module)
    }

    /// The last one of that name, as Python has it.
    pub(crate) fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().rfind(|function| function.name == name)
    }

    pub(crate) fn class(&self, name: &str) -> Option<&Class> {
        self.classes.get(name)
    }

    fn take(&mut self, statement: &Stmt, source: &Source) {
        match statement {
            Stmt::FunctionDef(function) => self.functions.push(Function::read(function, source)),
            Stmt::ClassDef(class) => {
                self.classes.insert(class.name.to_string(), Class::read(class, source));
            }
            _ => {}
        }
        Inner { module: self, place: Place::Top }.visit_stmt(statement);
    }

    fn bind(&mut self, target: &Expr) {
        if let Some(name) = target.as_name_expr() {
            self.bound.insert(name.id.to_string());
        }
    }

    fn take_import(&mut self, import: &StmtImport) {
        for alias in &import.names {
            let full = alias.name.as_str();
            let root = full.split('.').next().unwrap_or(full);
            let (name, origin) = match &alias.asname {
                Some(name) => (name.as_str(), full),
                None => (root, root),
            };
            self.bound.insert(name.to_owned());
            self.imports.insert(name.to_owned(), origin.to_owned());
        }
    }

    fn take_import_from(&mut self, import: &StmtImportFrom) {
        let module = import.module.as_ref().map_or("", |module| module.as_str());
        for alias in &import.names {
            let name = alias.asname.as_ref().unwrap_or(&alias.name).to_string();
            self.bound.insert(name.clone());
            self.imports.insert(name, format!("{module}.{}", alias.name));
        }
    }
}

/// Looks into statements for what may be inside: names that are bound under a condition, and
/// functions that their author may think of as being at the top.
struct Inner<'a> {
    module: &'a mut Module,
    place: Place,
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Top,
    /// In an `if`, a `try` or the like, whose names are the module's.
    Block,
    /// In a function or a class, whose names are its own.
    Body,
}

impl StatementVisitor<'_> for Inner<'_> {
    fn visit_stmt(&mut self, statement: &Stmt) {
        let place = self.place;
        if let Stmt::FunctionDef(function) = statement
            && place != Place::Top
        {
            let hidden = (function.name.to_string(), Span::of(&function.name));
            self.module.hidden.push(hidden);
        }
        if place != Place::Body {
            self.take_names(statement);
        }
        let is_body = matches!(statement, Stmt::FunctionDef(_) | Stmt::ClassDef(_));
        self.place = if is_body || place == Place::Body { Place::Body } else { Place::Block };
        walk_stmt(self, statement);
        self.place = place;
    }
}

impl Inner<'_> {
    fn take_names(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Import(import) => self.module.take_import(import),
            Stmt::ImportFrom(import) => self.module.take_import_from(import),
            Stmt::Assign(assign) => {
                assign.targets.iter().for_each(|target| self.module.bind(target));
            }
            Stmt::AnnAssign(assign) if assign.value.is_some() => self.module.bind(&assign.target),
            Stmt::FunctionDef(function) if self.place == Place::Block => {
                self.module.bound.insert(function.name.to_string());
            }
            _ => {}
        }
    }
}

impl Function {
    fn read(function: &StmtFunctionDef, source: &Source) -> Self {
        let parameters = &function.parameters;
        let positional = parameters.posonlyargs.iter().chain(&parameters.args);
        let read = |parameter: &ParameterWithDefault, keyword_only: bool| Parameter {
            name: parameter.name().to_string(),
            span: Span::of(&parameter.parameter),
            annotation: parameter.annotation().map(|it| Written::annotation(it, source)),
            default: parameter.default().map(|it| Written::read(it, source)),
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
            docstring: docstring(&function.body),
        }
    }
}

fn docstring(body: &[Stmt]) -> Option<Docstring> {
    let literal = body.first()?.as_expr_stmt()?.value.as_string_literal_expr()?;
    Some(Docstring { text: literal.value.to_str().to_owned(), span: Span::of(literal) })
}

impl Class {
    fn read(class: &StmtClassDef, source: &Source) -> Self {
        let arguments = class.arguments.as_deref();
        let bases = arguments.map_or(&[][..], |arguments| &arguments.args);
        let keywords = arguments.map_or(&[][..], |arguments| arguments.keywords.as_slice());
        let decorators = class.decorator_list.iter();
        Self {
            name: class.name.to_string(),
            decorators: decorators.map(|it| Written::read(&it.expression, source)).collect(),
            bases: bases.iter().map(|base| Written::read(base, source)).collect(),
            keywords: keywords
                .iter()
                .filter_map(|keyword| {
                    let name = keyword.arg.as_ref()?.to_string();
                    Some((name, Written::read(&keyword.value, source)))
                })
                .collect(),
            fields: class
                .body
                .iter()
                .filter_map(|statement| Field::read(statement, source))
                .collect(),
        }
    }
}

impl Field {
    fn read(statement: &Stmt, source: &Source) -> Option<Self> {
        let annotated = statement.as_ann_assign_stmt()?;
        Some(Self {
            name: annotated.target.as_name_expr()?.id.to_string(),
            annotation: Written::annotation(&annotated.annotation, source),
            default: annotated.value.as_deref().map(|value| Written::read(value, source)),
        })
    }
}
