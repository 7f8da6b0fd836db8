"""What a comparison is made of.

entries.py   encodings with options, from words such as "liere:block=4", and their labels
plan.py      a comparison: its runs, what they share, and the file that it is rebuilt from
outcomes.py  how far a run is, and why it failed
checks.py    what is refused before anything is trained
table.py     accuracies with intervals, differences to the baseline, cost; for a terminal and as CSV
"""
