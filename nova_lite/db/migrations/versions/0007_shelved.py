"""What an instance that is shelved keeps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("instances", sa.Column("shelved_image", sa.JSON, nullable=True))
    op.add_column("instances", sa.Column("shelved_at", TIME, nullable=True))
    op.create_index("ix_instances_shelved_at", "instances", ["shelved_at"])
