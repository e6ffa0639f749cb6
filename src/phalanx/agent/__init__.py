"""The agent: the small program that runs beside each replica, on whatever machine.

It starts the replica's command, keeps its output, measures it, and says how it ended. Standard library only,
Python 3.8+; it imports nothing of ours but modules that are so, too, and fits in one file with them.
"""
