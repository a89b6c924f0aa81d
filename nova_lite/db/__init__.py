"""All SQL: tables, queries by noun, and migrations. Only the conductor and the management commands import it.

A query function takes a `UnitOfWork` first. It returns typed objects, or rows for callers inside the conductor. It
never commits: `Database.write` commits once per message.

`engine` opens connections and transactions, `models` defines the tables, `actions` is the durable queue, `claims`
decides what fits where, and `audit` checks the invariants between rows.
"""
