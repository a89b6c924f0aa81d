"""Notifications for other systems about operations, in Nova's formats.

1. While a transaction runs, `nova_lite.db.core.action_changes` collects what becomes of its actions.
2. At its end, `recorder` writes the events as rows of the outbox (`nova_lite.db.core.outbox`), once for each channel.
3. After the commit, one thread of each channel (`courier`) delivers them, in order: to the `bus`, or to a `webhook`.

`events` knows which change is which event. `payloads` makes Nova's versioned payloads, and `legacy` its older ones.
The names come from the definitions of operations. `page` makes ``docs/reference/notifications.md`` from them. `service`
puts the parts together.
"""
