"""The conductor's handlers of operations: what only one operation does, beside the engine.

Most operations need no handler: their definition in `nova_lite.operations` says everything. A handler checks and
changes what a definition cannot describe, for example quota, images, volumes, or a migration's row. Its hooks run in
the engine's transactions: `accept` when the action is written, `on_step_done` after each step, `on_failed` after the
undo. See `nova_lite.conductor.engine.handler.OperationHandler`.

Files have the name of the operation, as in ``compute/operations``. `registry` maps kinds to handlers. `create` is an
endpoint of its own, because it makes servers, and each of the other operations changes one.
"""
