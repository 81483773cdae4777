#!/usr/bin/env python3
"""Reads the results of a run with nothing but Python's standard library: which index is the fastest, and why.

Run: python3 examples/read_rows.py dmkit-out/latest/rows.csv
docs/rows.md describes every column.
"""

import csv
import sys


def main(path):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    wrong = [row for row in rows if row["wrong_values"] != "0"]
    if not rows or wrong:
        sys.exit(f"{path}: {len(rows)} rows, of which {len(wrong)} read wrong values")

    panels = {}
    for row in rows:
        panels.setdefault((row["workload"], row["clients"], row["cache_limit_bytes"]), []).append(row)
    for (workload, clients, cache), points in panels.items():
        best = max(points, key=lambda row: float(row["mops"]))
        print(
            f"workload {workload}, {clients} clients, caches of {int(cache) / 1e6:g} MB:"
            f" {best['index']} ({best['variant']}) with"
            f" {float(best['mops']):.2f} Mops, p99 {float(best['p99_us']):.1f} us;"
            f" the limit is {best['limit'] or 'unknown'}"
        )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "dmkit-out/latest/rows.csv")
