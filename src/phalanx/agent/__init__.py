"""The agent: the small program that runs beside each replica, on any machine.

It starts the replica's command, keeps its output, measures it, and reports how it ended. Standard library only,
Python 3.8+. It imports only Phalanx modules with the same restrictions, and is packed into one file with them.
"""
