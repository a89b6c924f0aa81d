"""The conductor's part of the network service.

- `endpoints`: RPC methods about interfaces that a network service has
- `attach`: attaches interfaces whose ports another service makes
- `filter_publisher`: notifies hosts whose packet filters or routers have changed
- `filter_queries`: answers queries for packet filter rules, in batches
- `member_history`: remembers members of large security groups, so that hosts get what changed
"""
