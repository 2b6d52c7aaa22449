import numpy as np
from scipy import integrate, optimize, sparse, stats
from scipy.interpolate import CubicSpline

print(round(integrate.quad(np.sin, 0, np.pi)[0], 6), round(optimize.brentq(lambda x: x * x - 2, 0, 2), 6))
print(round(stats.norm.cdf(1.96), 4), sparse.eye(3).tocsr().nnz, round(float(CubicSpline([0, 1, 2], [0, 1, 4])(1.5)), 3))
print(optimize.minimize(lambda x: (x[0] - 3) ** 2, [0.0]).x.round(3).tolist())
