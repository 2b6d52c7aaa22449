//! The imports of a source, as far as they are known without running it.

use crate::diagnostic::SourceLocation;
use crate::source::{PythonSource, Span, with_parser_stack};
use ruff_python_ast::statement_visitor::{StatementVisitor, walk_body, walk_stmt};
use ruff_python_ast::{ExceptHandler, Expr, Stmt, StmtIf, StmtTry};
use std::collections::BTreeSet;

/// The top-level name of a module, and where it is first imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub module: String,
    pub location: SourceLocation,
}

/// Whether it is in the standard library of Python 3 with this minor version.
pub fn is_standard(minor: u8, module: &str) -> bool {
    matches!(module, "__future__" | "__main__")
        || ruff_python_stdlib::sys::is_known_standard_library(minor, module)
}

impl PythonSource {
    /// The modules that will be imported, also inside of functions. It omits imports for type
    /// checkers only, and optional ones, whose failure the source catches.
    pub fn imports(&self) -> Vec<Import> {
        with_parser_stack(|| match ruff_python_parser::parse_module(self.as_str()) {
            Ok(parsed) => {
                let mut found =
                    ImportVisitor { source: self, seen: BTreeSet::new(), imports: Vec::new() };
                walk_body(&mut found, &parsed.syntax().body);
                found.imports
            }
            Err(_) => Vec::new(),
        })
    }
}

struct ImportVisitor<'a> {
    source: &'a PythonSource,
    seen: BTreeSet<String>,
    imports: Vec<Import>,
}

impl ImportVisitor<'_> {
    fn add_import(&mut self, module: &str, span: Span) {
        let top = module.split('.').next().unwrap_or(module);
        if self.seen.insert(top.to_owned()) {
            let place = self.source.location(span);
            self.imports.push(Import { module: top.to_owned(), location: place });
        }
    }

    fn visit_if(&mut self, statement: &StmtIf) {
        if !is_type_checking(&statement.test) {
            walk_body(self, &statement.body);
        }
        statement.elif_else_clauses.iter().for_each(|clause| walk_body(self, &clause.body));
    }

    fn visit_try(&mut self, statement: &StmtTry) {
        if !statement.handlers.iter().any(catches_imports) {
            walk_body(self, &statement.body);
        }
        for ExceptHandler::ExceptHandler(handler) in &statement.handlers {
            walk_body(self, &handler.body);
        }
        walk_body(self, &statement.orelse);
        walk_body(self, &statement.finalbody);
    }
}

impl StatementVisitor<'_> for ImportVisitor<'_> {
    fn visit_stmt(&mut self, statement: &Stmt) {
        match statement {
            Stmt::Import(import) => {
                let names = import.names.iter();
                names.for_each(|alias| self.add_import(&alias.name, Span::of(statement)));
            }
            Stmt::ImportFrom(import) if import.level == 0 => {
                import
                    .module
                    .iter()
                    .for_each(|module| self.add_import(module, Span::of(statement)));
            }
            Stmt::If(statement) => self.visit_if(statement),
            Stmt::Try(statement) => self.visit_try(statement),
            _ => walk_stmt(self, statement),
        }
    }
}

fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Name(name) => Some(name.id.as_str()),
        Expr::Attribute(attribute) => Some(attribute.attr.as_str()),
        _ => None,
    }
}

fn is_type_checking(test: &Expr) -> bool {
    last_name(test) == Some("TYPE_CHECKING")
}

fn catches_imports(ExceptHandler::ExceptHandler(handler): &ExceptHandler) -> bool {
    let catches = |name: &Expr| {
        let caught = ["ImportError", "ModuleNotFoundError", "Exception", "BaseException"];
        last_name(name).is_some_and(|name| caught.contains(&name))
    };
    match handler.type_.as_deref() {
        None => true,
        Some(Expr::Tuple(several)) => several.elts.iter().any(catches),
        Some(one) => catches(one),
    }
}
