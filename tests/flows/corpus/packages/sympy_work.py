import sympy

x = sympy.symbols("x")
print(sympy.integrate(sympy.exp(-(x**2)), (x, -sympy.oo, sympy.oo)), sympy.solve(x**2 - 2, x), sympy.factorint(2**64 - 1))
print(sympy.latex(sympy.Rational(1, 2)), sympy.Matrix([[1, 2], [3, 4]]).det(), sympy.N(sympy.pi, 30))
