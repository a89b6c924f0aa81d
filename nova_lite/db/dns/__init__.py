"""Zones and record sets of projects (`nova_lite.dns`).

- `zones`: zones, and the quotas of projects
- `recordsets`: record sets of users, and names of the addresses of floating addresses
- `work`: names of floating addresses in zones, and what the name server does not have yet
"""
