"""Trunks.

- `records`: trunks and their subports, as users make them
- `hosts`: subports of each host, and what hosts report about them
"""
