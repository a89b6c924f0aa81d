"""The conductor's work for compute hosts.

- `heartbeats`: writes heartbeats, and renews leases in batches
- `publisher`: publishes changes of hosts to the schedulers
- `filter_queries`: answers queries for packet filter rules, in batches
- `member_history`: remembers members of large security groups, so that hosts get what changed
- `filter_publisher`: notifies hosts whose packet filter rules have changed
- `domains`: compares the domains of a host with the database
- `retirement`: retires a host that will not come back
"""
