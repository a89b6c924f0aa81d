"""Backups of servers by policies, and replication to another site.

- `scheduled_backups`: plans backups, begins their actions, and removes old ones
- `stored_backups`: moves uploaded backups into repositories, and makes images of them
- `replication`: follows the journal of sites, and takes servers through failovers
"""
