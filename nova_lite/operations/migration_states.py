"""Types and states of migrations, by Nova's names."""

from __future__ import annotations

RESIZE = "resize"
MIGRATION = "migration"
LIVE_MIGRATION = "live-migration"
EVACUATION = "evacuation"

PRE_MIGRATING = "pre-migrating"
MIGRATING = "migrating"
POST_MIGRATING = "post-migrating"
FINISHED = "finished"
CONFIRMING = "confirming"
CONFIRMED = "confirmed"
REVERTING = "reverting"
REVERTED = "reverted"
ERROR = "error"

# States of evacuations only, beside `PRE_MIGRATING` and `ERROR`.
ACCEPTED = "accepted"
DONE = "done"
FAILED = "failed"

# States of live migrations only.
QUEUED = "queued"
PREPARING = "preparing"
RUNNING = "running"
COMPLETED = "completed"
CANCELLED = "cancelled"

#: States of a live migration in progress.
LIVE_IN_PROGRESS = (QUEUED, PREPARING, RUNNING, POST_MIGRATING)

#: States of a migration that is in progress or waits for its owner's decision.
OPEN = (
    PRE_MIGRATING, MIGRATING, POST_MIGRATING, FINISHED, CONFIRMING, REVERTING, ACCEPTED, QUEUED, PREPARING, RUNNING,
)  # fmt: skip

#: States of a finished migration.
CLOSED = (CONFIRMED, REVERTED, ERROR, COMPLETED, CANCELLED, DONE, FAILED)
