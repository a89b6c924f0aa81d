"""Tags of the network API's resources, and the time of the last change of floating addresses."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_TABLES = ("networks", "ports", "routers", "floating_ips", "security_groups", "security_group_rules")


def upgrade() -> None:
    for table in _TABLES:
        op.add_column(table, sa.Column("tags", sa.JSON(), nullable=True))
    op.add_column("networks", sa.Column("subnet_tags", sa.JSON(), nullable=True))
    op.add_column("floating_ips", sa.Column("updated_at", TIME, nullable=True))
