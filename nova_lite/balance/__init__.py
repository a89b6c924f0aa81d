"""Balancing of hosts: the pure planner. The conductor reads its data, and begins the moves.

- `planner`: decides which servers move off hosts under pressure
"""
