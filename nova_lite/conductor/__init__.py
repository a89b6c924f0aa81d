"""The conductor: accepts requests, takes actions from step to step, and is the only daemon that uses the database.

- `rpcapi`: its RPC methods, for the API, the scheduler and compute hosts
- `manager`: puts its parts together
- `endpoints`: the RPC methods by subject
- `engine`: takes an action from acceptance over commands and reports to its end, or undoes it; see its docstring
- `operations`: what only one operation does
- `notifications`: notifications for other systems, on the bus and by webhooks
- `hosts`: heartbeats, retirement, domains, and the change notifications to schedulers and hosts
- `replay_cache`: makes repeated messages harmless

All SQL is in `nova_lite.db`.
"""
