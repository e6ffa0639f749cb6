"""Packed groups: trials that run in one allocation, whose first node also runs the search.

`group` is the view of the home's scheduler: it submits the allocation and reads what its job writes. `job` runs in the
allocation: a scheduler for the trials of one group. `nodes` starts and observes trials on its nodes.
"""
