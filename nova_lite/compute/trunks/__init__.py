"""Trunks on a host.

- `wing`: reports to the conductor, and connects the subports that it names
- `devices`: VLANs of guests' interfaces on bridges
"""
