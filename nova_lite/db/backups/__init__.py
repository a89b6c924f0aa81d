"""Backups by policies, and servers with a replica at another site.

- `backup_policies`: policies, their targets, and whether they are met
- `server_backups`: backups of servers, from the plan to the removal
- `replicated_servers`: servers with a replica at another site
"""
