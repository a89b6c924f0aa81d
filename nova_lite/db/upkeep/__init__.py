"""Upkeep of the whole database. It may read every table.

- `due`: the work of a reconciler sweep, by one statement
- `invariants`: the invariants between rows, and their repair
- `server_traces`: recorded changes of servers, judged
- `transitions`: the transitions that operations make of a server
- `audit_events`: the audit log of requests
- `purge`: removal of old rows
- `dump`: the whole database as text
- `backlog`: open work in numbers, for metrics
- `overview`: the cloud at a glance
- `request_trace`: entries about one request
"""
