# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""Makes one HTML page with a Chart.js chart from rows of JSON or CSV. The page needs no other file.

The first column has the labels, each further column is a series of numbers.
"""

import argparse
import csv
import html
import json
import math
import sys
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "assets"
TYPES = ("bar", "line", "doughnut", "scatter")
# More points than a page can show; a browser would only become slow.
ROWS_MAX = 10_000


class Unusable(Exception):
    """The data is not what a chart can be made of."""


def read_rows(path: Path) -> list[dict[str, object]]:
    if path.suffix.lower() == ".csv":
        with path.open(newline="", encoding="utf-8-sig") as file:
            return list(csv.DictReader(file))
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unusable(f"{path} is neither .csv nor JSON: {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unusable(f"{path} must have a list of objects, such as [{{\"month\": \"Jan\", \"total\": 12}}]")
    return rows


def number(value: object, column: str, line: int) -> int | float:
    if isinstance(value, str):
        try:
            value = float(value) if not value.strip().lstrip("+-").isdigit() else int(value)
        except ValueError:
            pass
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Unusable(f"row {line} has {value!r} in {column!r}, which is not a number")
    return value


def chart_data(rows: list[dict[str, object]], chart_type: str) -> dict[str, object]:
    if not rows:
        raise Unusable("there are no rows")
    if len(rows) > ROWS_MAX:
        raise Unusable(f"there are {len(rows)} rows, and at most {ROWS_MAX} can be shown: add them up first")
    label, *columns = rows[0]
    if not columns:
        raise Unusable("there is one column only: the first has the labels, the others the numbers")
    for line, row in enumerate(rows, 1):
        if list(row) != [label, *columns]:
            raise Unusable(f"row {line} has other columns than the first one")
    if chart_type == "doughnut" and len(columns) > 1:
        raise Unusable("a doughnut shows one column of numbers")
    labels = [row[label] for row in rows]
    if chart_type == "scatter":
        labels = [number(value, label, line) for line, value in enumerate(labels, 1)]
    series = [
        {"name": column, "values": [number(row[column], column, line) for line, row in enumerate(rows, 1)]}
        for column in columns
    ]
    return {"type": chart_type, "labels": [str(value) for value in labels], "series": series}


def page(data: dict[str, object], title: str) -> str:
    text, chart_js = ((ASSETS / name).read_text(encoding="utf-8") for name in ("chart.html", "chart.umd.min.js"))
    # In HTML, the text of a script ends at the first `</script>`, whatever it is part of.
    embedded = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    # The page allows this script by its hash, so that it stands there unchanged.
    places = {"title": html.escape(title), "chart_js": chart_js, "data": embedded}
    pieces = text.split("{{")
    # Each piece is filled by itself, so that braces in the data are never taken for a place.
    filled = [places[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:])]
    return pieces[0] + "".join(filled)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", type=Path, help="a .csv file with a header, or JSON with a list of objects")
    parser.add_argument("--type", choices=TYPES, default="bar")
    parser.add_argument("--title", default="Chart")
    parser.add_argument("--out", type=Path, metavar="PATH", help="where the page is written instead of stdout")
    args = parser.parse_args()
    try:
        text = page(chart_data(read_rows(args.rows), args.type), args.title)
        if args.out is None:
            sys.stdout.write(text)
        else:
            args.out.write_text(text, encoding="utf-8")
    except (Unusable, OSError) as error:
        print(f"chart.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
