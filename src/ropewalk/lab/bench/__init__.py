"""What encodings cost, beside a floor and beside peers, each in one run. An op whose output is wrong gets no figure."""
