"""Turning q and k on a CPU, beside other people's functions, in one run: the suite `cpu` of `ropewalk bench`.

python benchmarks/rotate_cpu.py results/rotate-cpu.json
"""

import sys
from pathlib import Path

from ropewalk.lab.bench.report import run, words

if __name__ == "__main__":
    run(["cpu"], Path(sys.argv[1]), lambda row: print(words(row)))
