"""The conductor's part of load balancers.

- `wing`: methods of users, reports of hosts, and fail-over
"""
