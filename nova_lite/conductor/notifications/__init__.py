"""Notifications for other systems about operations, in Nova's formats.

1. While a transaction runs, `nova_lite.db.core.action_changes` collects what becomes of its actions.
2. At its end, `recorder` writes the events as rows of the outbox (`nova_lite.db.core.outbox`), once for each channel.
3. After the commit, one thread of each channel (`courier`) delivers them, in order: to the `bus`, or to a `webhook`.

- `service`: puts the parts together
- `recorder`: writes events to the outbox
- `courier`: delivers them, in order
- `bus`, `webhook`: channels
- `events`, `states`, `resources`: which change is which event
- `payloads`, `legacy`, `periods`: Nova's payloads, versioned and older, and periods of usage audits
- `page`: generator of ``docs/reference/notifications.md``
"""
