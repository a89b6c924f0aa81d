"""The conductor: accepts requests, takes actions from step to step, and is the only daemon that uses the database.

Its RPC methods are declared in `nova_lite.rpcapi.conductor`; all SQL is in `nova_lite.db`, in wings of the same names.
A wing imports `operations` and `engine`, but no other wing.

- `manager`: puts the parts together, and has all timers
- `reconciler`: repeats the current step of unfinished actions
- `actions`: RPC methods about actions: acceptance, and reports of hosts
- `database`: RPC methods that are one function of `nova_lite.db`, such as changes of routers and quotas
- `identity`: RPC methods about records of the identity service
- `lost_devices`: tells owners of servers that devices have vanished
- `wings`, `dns`, `load_balancer`, `trunks`: parts that a conductor loads only if an operator wants them
- `replay_cache`: makes repeated messages harmless
- `engine`: takes an action from acceptance to its end, or undoes it
- `operations`: what only one operation does
- `hosts`: heartbeats, lost hosts, domains, health, balance
- `network`: interfaces at a network service, and packet filters of hosts
- `volume`: volumes and their backups, and Cinder
- `image`: images
- `backups`: backups by policies, and replication to another site
- `notifications`: notifications for other systems
"""
