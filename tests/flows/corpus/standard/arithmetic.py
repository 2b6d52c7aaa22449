import cmath
import decimal
import fractions
import math
import random
import statistics
from decimal import Decimal

decimal.getcontext().prec = 50
print(Decimal(2).sqrt(), Decimal("0.1") + Decimal("0.2"))
print(fractions.Fraction(1, 3) + fractions.Fraction(1, 6), cmath.exp(1j * math.pi).real)
print(2**1000 % 10**9, math.factorial(50), math.comb(60, 30), math.isqrt(10**40), pow(3, -1, 11))
print(statistics.mean([1, 2, 3.5]), statistics.stdev([1, 2, 4]), math.fsum([0.1] * 10))
random.seed(42)
print(random.random(), random.sample(range(100), 5), random.gauss(0, 1))
try:
    str(10**5000)
except ValueError as error:
    print(error)
