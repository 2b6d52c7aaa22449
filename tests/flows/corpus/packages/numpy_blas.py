import numpy as np

rng = np.random.default_rng(1)
a = rng.random((300, 300))
product = a @ np.linalg.inv(a)
print(np.allclose(product, np.eye(300)), np.linalg.eigvalsh(np.diag([3.0, 1.0, 2.0])).round(6).tolist())
print(np.fft.fft([1, 0, 0, 0]).real.tolist(), np.arange(12).reshape(3, 4).sum(axis=0).tolist())
np.save("a.npy", a)
print((np.load("a.npy", mmap_mode="r") == a).all())
np.savetxt("a.txt", [[1, 2]], fmt="%d")
print(np.loadtxt("a.txt").tolist(), np.float32(0.1).item())
