//! The imports of a source, listed before it runs.

use belljar_contract::{PythonSource, is_standard};

fn imports(code: &str) -> Vec<(String, usize, usize)> {
    let imports = PythonSource::new(code).unwrap().imports();
    imports.into_iter().map(|it| (it.module, it.location.line, it.location.column)).collect()
}

#[test]
fn every_module_is_named_once_by_its_first_place() {
    let code = "\
import os, numpy.linalg as la
from six.moves import range
def handle():
    import numpy
    with open('x'):
        if os:
            from idna import core
class A:
    import yaml
";
    let expected = [("os", 1, 1), ("numpy", 1, 1), ("six", 2, 1), ("idna", 7, 13), ("yaml", 9, 5)];
    let expected = expected.map(|(module, line, column)| (module.to_owned(), line, column));
    assert_eq!(imports(code), expected);
}

#[test]
fn what_cannot_fail_the_tool_is_left_out() {
    let code = "\
from __future__ import annotations
import typing
from . import beside
from .beside import this
if typing.TYPE_CHECKING:
    import pandas
elif True:
    import needed
try:
    import ujson as json
except ImportError:
    import json
try:
    import lxml
except (KeyError, ModuleNotFoundError):
    lxml = None
try:
    import wanted
except ValueError:
    pass
finally:
    import last
";
    let names: Vec<String> = imports(code).into_iter().map(|(module, ..)| module).collect();
    assert_eq!(names, ["__future__", "typing", "needed", "json", "wanted", "last"]);
}

#[test]
fn what_comes_with_python_depends_on_its_version() {
    assert!(is_standard(12, "__future__") && is_standard(12, "sys") && is_standard(12, "json"));
    assert!(is_standard(11, "cgi") && !is_standard(13, "cgi"));
    assert!(!is_standard(13, "numpy"));
}
