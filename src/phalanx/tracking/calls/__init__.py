"""Functions that run as a run: the file with the call, and the program that runs it in each rank.

`phalanx.submit(train, lr=0.1)` writes the call; `python -m phalanx.tracking.calls DIGEST` runs it. Standard library
only, Python 3.8+.
"""
