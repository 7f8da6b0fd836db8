"""What encodings cost, beside a floor and beside peers, each in one run. An op whose output is wrong gets no figure."""

from ropewalk.lab.bench.report import SUITES as SUITES
from ropewalk.lab.bench.report import plan as plan
from ropewalk.lab.bench.report import run as run
