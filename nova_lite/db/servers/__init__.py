"""Servers, and what creates of servers refer to.

- `instances`: reads of servers, and the fields that users change freely
- `instance_filters`: filters of lists
- `instance_metadata`: metadata, and passwords of guests
- `instance_tags`: tags
- `interfaces`: interfaces as servers show them
- `action_log`: reads of the action log
- `past`: servers as they were at an earlier time
- `claims`: claims of room at hosts
- `resource_releases`: releases of several servers by the statements of one
- `server_migrations`: moves of servers, as Nova's API shows them
- `server_groups`: server groups and their policies
- `flavors`: flavors
- `flavor_access`: projects with access to private flavors
- `keypairs`: key pairs
- `console_tokens`: console tokens
- `tpms`, `disk_keys`: keys of TPMs and of encrypted disks
- `points`: snapshot points of servers
- `clones`: creates that wait for the disk of their source
- `shares`: shares of projects and of servers
- `fencing`: fencing records that a host may remove
- `newer_domains`: servers whose guest is newer than their row
- `usage`: usage by project in a period
- `usage_audits`: progress of usage audits
"""
