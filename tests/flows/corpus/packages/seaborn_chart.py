import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns

sns.set_theme()
axes = sns.barplot(pd.DataFrame({"k": ["a", "b"], "v": [1, 2]}), x="k", y="v")
print(len(axes.patches), axes.get_xlabel())
axes.figure.savefig("chart.png")
plt.close("all")
