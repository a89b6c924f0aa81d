"""Connections, transactions, tables, and what all wings use.

- `engine`: connections, transactions, and the database's clock
- `models`: the tables
- `actions`: the action log as a queue
- `events`: events of a transaction, for subscribers
- `action_changes`: changes of actions that become notifications
- `state_changes`: changes of servers' states that become notifications
- `server_changes`: changes of servers, recorded in the rows of actions
- `resource_events`: events about flavors, key pairs, aggregates, groups and services
- `outbox`: notifications that other systems have not received yet
- `quotas`: limits of projects and users, and their usage
- `releases`: quota, ports and places that are released together
- `quota_counts`: usage, counted from the rows
- `paging`: pages of lists
- `plans`: prepared statements
- `sessions`: sessions that write a server and its action by plans
- `rows`: conversion between rows and objects
- `statements`: statements that differ between databases
- `if_match`: changes on the condition of a revision
- `replay_cache`: ids of messages that were accepted
- `errors`: classes of database errors
- `time_limit`: time limit of reads
- `autocommit`: transactions of MariaDB and PostgreSQL
- `drivers`: drivers of MariaDB
- `tls_files`: files for TLS
- `urls`: parts of a database's URL
- `database_nodes`: nodes of the database of several controllers
"""
