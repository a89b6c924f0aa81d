"""When a daemon began to run its version. Code from here on runs on newer schemas that serve it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0051"
down_revision = "0048b"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("services", sa.Column("version_since", TIME, nullable=True))
