import openpyxl
import pandas as pd

book = openpyxl.Workbook()
sheet = book.active
sheet.append(["name", "value"])
sheet.append(["ü", 1.5])
sheet["C1"] = "=SUM(B2:B2)"
book.save("book.xlsx")
print([[cell.value for cell in row] for row in openpyxl.load_workbook("book.xlsx").active])
pd.DataFrame({"a": [1, 2]}).to_excel("frame.xlsx", sheet_name="s", index=False)
print(pd.read_excel("frame.xlsx").a.tolist())
