"""The conductor's part of trunks.

- `wing`: methods of users, and reports of hosts
"""
