"""Changes of servers, in the row of an action."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instance_actions", sa.Column("changes", sa.JSON()))
