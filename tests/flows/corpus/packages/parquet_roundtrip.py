import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

frame = pd.DataFrame({"n": range(1000), "text": [f"ü{n}" for n in range(1000)]})
frame.to_parquet("frame.parquet")
print(pd.read_parquet("frame.parquet").equals(frame), pq.read_metadata("frame.parquet").num_rows)
print(pc.sum(pa.array([1, 2, None])).as_py())
frame.to_feather("frame.feather")
print(pd.read_feather("frame.feather").n.sum())
