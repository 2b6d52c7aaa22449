import io

import pandas as pd

frame = pd.read_csv(io.StringIO("day,shop,sales\n2024-01-01,a,3\n2024-01-01,b,4\n2024-01-02,a,5\n"), parse_dates=["day"])
print(frame.groupby("shop").sales.agg(["sum", "mean"]))
print(frame.pivot_table(index="day", columns="shop", values="sales", fill_value=0).to_dict("list"))
print(frame.set_index("day").sales.resample("D").sum().tolist())
frame.to_json("frame.json", orient="records", date_format="iso")
print(pd.read_json("frame.json").sales.sum(), frame.merge(frame, on="shop").shape)
