"""The engine: takes every accepted action from step to step until it is done, or undoes it.

The path of one action, for example a pause:

1. Accept (`accept`): check the server's state, write the action's row, and plan the first step. The reply is the
   command.
2. Wake-up: the API sends the command to the host. If a host has to be chosen first, the API sends `build_instances` to
   a conductor, whose `scheduling` does that and sends the command.
3. Report (`command_reports`, `build_reports`): the host has carried out the command, or has failed.
4. Next step (`advance`): record the step and plan the next one, whose command is sent after the commit.
5. Done: after the last step the action is closed. After a failure `compensate` runs the undos of the steps instead.

- `engine`: puts the parts together
- `handler`: the interface for what only one operation does
- `accept`: checks a request, and writes its action
- `advance`: takes an action from step to step
- `compensate`: undoes an action that has failed
- `scheduling`, `placement_request`: chooses and claims hosts
- `command_reports`, `build_reports`: reports of hosts
- `deadlines`, `keyed_executor`: due actions, and the threads that repeat their steps
- `service_calls`, `network_calls`, `image_calls`: calls to other services
- `unavailable_hosts`: passes steps whose host is gone
- `context`, `ports`: an open action, and what the engine needs from outside
- `clock_guard`: detects jumps of the database's clock, so that nothing is destroyed early because of one
- `faults`: the cause that a server in ERROR shows to its owner

Messages may be lost: `nova_lite.conductor.reconciler` repeats the current step of every action whose lease has expired,
and `deadlines` fails actions that take too long.

The engine knows the definitions (`nova_lite.operations`), but no operation by name. The handlers are in
`nova_lite.conductor.operations`.
"""
