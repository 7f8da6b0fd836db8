"""Comparisons of encodings under equal conditions.

plan.py       a comparison: its runs, what they share, and the file that it is rebuilt from
preflight.py  what is refused before anything is trained
run.py        training the runs of a comparison, and their table of results
"""

from ropewalk.lab.compare.run import compare_encodings as compare_encodings
from ropewalk.lab.compare.run import format_comparison_csv as format_comparison_csv
from ropewalk.lab.compare.run import tabulate_comparison as tabulate_comparison

# Former names, which scripts may import.
compare, as_csv, table = compare_encodings, format_comparison_csv, tabulate_comparison
