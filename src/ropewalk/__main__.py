"""`python -m ropewalk` is the command `ropewalk`; so `accelerate launch -m ropewalk train …` trains on several GPUs."""

import sys

from ropewalk.cli import main

if __name__ == "__main__":
    sys.exit(main())
