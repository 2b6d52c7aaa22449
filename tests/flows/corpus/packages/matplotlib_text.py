import matplotlib
import matplotlib.pyplot as plt
from matplotlib.backends.backend_pdf import PdfPages

figure, axes = plt.subplots(1, 2)
axes[0].plot([1, 2], label="ü")
axes[0].legend()
axes[1].imshow([[1, 2], [3, 4]])
axes[0].set_title(r"$\frac{1}{2}$")
for name in ("a.png", "a.pdf", "a.svg"):
    figure.savefig(name)
    print(name, open(name, "rb").read(4))
with PdfPages("b.pdf") as pages:
    pages.savefig(figure)
plt.close(figure)
print(len(plt.get_fignums()))
