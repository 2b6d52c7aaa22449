import ast
import code
import dis
import inspect
import io
import linecache
import tokenize
import traceback

tree = ast.parse("x = 1 + 2")
print(ast.dump(tree.body[0].value), ast.unparse(tree))
namespace = {}
exec(compile(tree, "<made>", "exec"), namespace)
print(namespace["x"], eval("x * 2", namespace))
print([i.opname for i in dis.get_instructions("pass")][-1])
print([t.string for t in tokenize.generate_tokens(io.StringIO("a + 1").readline)][:3])


def f(a, /, b: int = 2, *args, c, **kw) -> str:
    "doc"


print(inspect.signature(f), inspect.getdoc(f), f.__qualname__, f.__module__)
try:
    exec("1 / 0")
except ZeroDivisionError:
    print(traceback.format_exc().splitlines()[-1], len(traceback.extract_stack()) >= 1)
interpreter = code.InteractiveInterpreter()
interpreter.runsource("print('interactive')")
print(linecache.getline("no such file", 1) == "", breakpoint is not None)
