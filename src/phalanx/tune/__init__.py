"""Search: which trial runs next, as a pure function of the recorded history. Standard library only, Python 3.8+."""
