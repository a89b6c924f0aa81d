"""The conductor's handlers of operations: what only one operation does, beside the engine.

Most operations need no handler: their definition in `nova_lite.operations` says everything. A handler checks and
changes what a definition cannot describe, for example quota, images, volumes, or a migration's row. Its hooks run in
the engine's transactions: `accept` when the action is written, `on_step_done` after each step, `on_failed` after the
undo. See `nova_lite.conductor.engine.handler.OperationHandler`.

Most files have the name of the operation. Cold migrations are in `resize`. `create` is an endpoint of its own, because
it makes servers, and each of the other operations changes one.

- `registry`: handlers by kind
- `checks`, `volume_sources`: checks that several operations share
- `create`: accepts creates, which have endpoints of their own
- `clones`: the disk of a server is frozen before its clone is created
- `endpoints`: RPC methods of operations without steps
- `lock`, `reset_state`: the two operations without steps
- `delete`: delete and restore: what changes when the hosts have confirmed a delete or are down
- `evacuate`: evacuation: the instance leaves a host that is forced down, and is built on another one
- `interfaces`: attach and detach interfaces
- `live_migration`: its checks, and the row that shows its progress
- `live_migration_control`: RPC methods of running live migrations: their progress, and the user's control of them
- `password`: accepting a change of password
- `points`: create and delete snapshot points, and revert to them
- `power`: reboot: what a host needs to define the domain again
- `rebuild`: the instance gets a new disk on its host, made of the same image or of another one
- `rescue`: accepting a rescue: which image the server is to boot from
- `resize`: resize and cold migration, and their confirmation or revert
- `shares`: attach and detach shares
- `shelve`: shelve, offload, unshelve: what a shelved server keeps, and where an unshelved one goes
- `snapshot`: images of servers
- `volumes`: attach, detach and swap volumes, and work on their files
"""
