"""Asserts that can report what they compared.

A walrus binds each operand of an assert to a name, in its place, so that order, short-circuiting and positions stay
those of the source. The names are not valid Python and so clash with none; they are cleared before and after each
assert. Two differences remain: `locals()` and `globals()` show the names in a later operand, and after a failed assert
that the user caught; and an operand lives until its assert has passed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from opcode import opmap
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any, NamedTuple

from . import report

# Short enough for a person or a model that reads one failure.
_TEXT_CHARS = 500
_MAX_VALUES = 20

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LITERALS = (
    ast.Constant, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.UnaryOp, ast.unaryop, ast.operator, ast.expr_context
)
# Their repr adds nothing to the source.
_MUTE = (ast.GeneratorExp, ast.Lambda)
_DEFINITIONS = (type, FunctionType, BuiltinFunctionType, ModuleType)
_RAISE = opmap["RAISE_VARARGS"]


class _Assert(NamedTuple):
    statement: ast.Assert
    operands: list[tuple[str, ast.expr]]


class ExplainedAsserts:
    """A module whose failed asserts can be explained."""

    def __init__(self, source: str, name: str) -> None:
        self._source = source
        self._name = name
        self._asserts: list[_Assert] = []
        self.module = self._compile()

    def _compile(self) -> CodeType:
        try:
            tree = compile(self._source, self._name, "exec", ast.PyCF_ONLY_AST, True)
            self._asserts += _rewrite(tree)
            return compile(tree, self._name, "exec", 0, True)
        except RecursionError:
            # Python accepts deeper sources than trees. Such a module runs too, but explains nothing.
            self._asserts.clear()
            return compile(self._source, self._name, "exec", 0, True)

    def describe(self, error: BaseException) -> dict[str, Any]:
        described = report.describe(error)
        failed = self._failed(error)
        if failed is None:
            return described
        known, frame = failed
        if not error.args:
            described["message"] = self._text(known.statement.test)
        described["assertion"] = {
            "line": known.statement.lineno,
            "source": self._text(known.statement).partition("\n")[0].rstrip(),
            "values": self._values(known, frame),
        }
        return described

    def _failed(self, error: BaseException) -> tuple[_Assert, FrameType] | None:
        """The assert of this module that raised the exception, if any, and its frame."""
        last = _innermost(error.__traceback__)
        if type(error) is not AssertionError or last is None:
            return None
        code = last.tb_frame.f_code
        if code.co_filename != self._name or code.co_code[last.tb_lasti] != _RAISE:
            return None
        line, _, column, _ = list(code.co_positions())[last.tb_lasti // 2]
        known = next((known for known in self._asserts if _covers(known.statement, line, column)), None)
        return known and (known, last.tb_frame)

    def _values(self, known: _Assert, frame: FrameType) -> list[list[str]]:
        seen: dict[str, str] = {}
        for node, value in _operands_and_variables(known, frame):
            if len(seen) == _MAX_VALUES:
                break
            if not (isinstance(node, ast.Name) and isinstance(value, _DEFINITIONS)):
                text = self._text(node)
                if text not in seen:
                    seen[text] = report.shorten(report.text_of(value), _TEXT_CHARS)
        return [[text, value] for text, value in seen.items()]

    def _text(self, node: ast.AST) -> str:
        return report.shorten(ast.get_source_segment(self._source, node) or "", _TEXT_CHARS)


def _rewrite(tree: ast.Module) -> Iterator[_Assert]:
    """Iterative, not recursive: a long chain of `elif` is nested as deeply as it is long."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, in_class = waiting.pop()
        for block in (getattr(node, name, None) for name in _BLOCKS):
            if not isinstance(block, list):
                continue
            waiting += [(child, _is_class_scope(child, in_class)) for child in block]
            # In a class body a walrus would create an attribute, which `Enum` or a dataclass would see.
            if not in_class:
                yield from _rewrite_block(block)


def _is_class_scope(node: ast.AST, in_class: bool) -> bool:
    return isinstance(node, ast.ClassDef) or (in_class and not isinstance(node, _FUNCTIONS))


def _rewrite_block(block: list[ast.stmt]) -> Iterator[_Assert]:
    rewritten: list[ast.stmt] = []
    for statement in block:
        if isinstance(statement, ast.Assert):
            known = _Assert(statement, [])
            statement.test = _captured_test(statement.test, known.operands)
            rewritten += [*_clearing(known), statement, *_clearing(known)]
            yield known
        else:
            rewritten.append(statement)
    block[:] = rewritten


def _captured_test(test: ast.expr, operands: list[tuple[str, ast.expr]]) -> ast.expr:
    if isinstance(test, ast.Tuple):
        return test  # always true, of which the compiler warns when it sees a tuple
    if not isinstance(test, ast.Call):
        return _captured(test, operands)
    test.args = [_captured_argument(argument, operands) for argument in test.args]
    for keyword in test.keywords:
        keyword.value = _captured(keyword.value, operands)
    return test


def _captured_argument(argument: ast.expr, operands: list[tuple[str, ast.expr]]) -> ast.expr:
    if isinstance(argument, ast.Starred):
        argument.value = _captured(argument.value, operands)
        return argument
    return _captured(argument, operands)


def _captured(node: ast.expr, operands: list[tuple[str, ast.expr]]) -> ast.expr:
    """The expression with its deciding operands bound to names, which are added to the operands."""
    if isinstance(node, ast.BoolOp):
        node.values = [_captured(value, operands) for value in node.values]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        node.operand = _captured(node.operand, operands)
    elif isinstance(node, ast.Compare):
        node.left = _bound(node.left, operands)
        node.comparators = [_bound(value, operands) for value in node.comparators]
    else:
        return _bound(node, operands)
    return node


def _bound(node: ast.expr, operands: list[tuple[str, ast.expr]]) -> ast.expr:
    if isinstance(node, _MUTE) or all(isinstance(part, _LITERALS) for part in ast.walk(node)):
        return node
    name = f"@{len(operands)}"
    operands.append((name, node))
    target = ast.copy_location(ast.Name(name, ast.Store()), node)
    return ast.copy_location(ast.NamedExpr(target, node), node)


def _clearing(known: _Assert) -> list[ast.stmt]:
    """Unbinds the names, whether or not they are bound."""
    if not known.operands:
        return []
    bind = ast.Assign([ast.Name(name, ast.Store()) for name, _ in known.operands], ast.Constant(None))
    unbind = ast.Delete([ast.Name(name, ast.Del()) for name, _ in known.operands])
    for statement in (bind, unbind):
        for node in ast.walk(statement):
            ast.copy_location(node, known.statement)
    return [bind, unbind]


def _innermost(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _covers(statement: ast.Assert, line: int | None, column: int | None) -> bool:
    if line is None or column is None:
        return False
    end = (statement.end_lineno, statement.end_col_offset)
    return (statement.lineno, statement.col_offset) <= (line, column) < end


def _operands_and_variables(known: _Assert, frame: FrameType) -> Iterator[tuple[ast.expr, Any]]:
    """Operands that were not evaluated are unbound and are left out."""
    variables = frame.f_locals
    for name, node in known.operands:
        if name in variables:
            yield node, variables[name]
    names = [node for node in ast.walk(known.statement.test) if isinstance(node, ast.Name)]
    own = {node.id for node in names if isinstance(node.ctx, ast.Store)}  # of comprehensions, and the captured ones
    own |= {node.arg for node in ast.walk(known.statement.test) if isinstance(node, ast.arg)}
    for node in names:
        if node.id not in own:
            for scope in (variables, frame.f_globals):
                if node.id in scope:
                    yield node, scope[node.id]
                    break
