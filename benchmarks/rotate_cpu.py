"""Rotating q and k on a CPU, beside functions of other libraries, in one run: the suite `cpu` of `ropewalk bench`.

python benchmarks/rotate_cpu.py results/rotate-cpu.json
"""

import sys
from pathlib import Path

from ropewalk.lab.bench.suites import format_bench_row, run_bench_suites

if __name__ == "__main__":
    run_bench_suites(["cpu"], Path(sys.argv[1]), lambda row: print(format_bench_row(row)))
