"""Further addresses of ports."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_NAME = "fk_ports_primary_id"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":  # it adds no constraint to a table, only a column with one
        reference = f"CONSTRAINT {_NAME} REFERENCES ports (id) ON DELETE CASCADE"
        op.execute(f"ALTER TABLE ports ADD COLUMN primary_id VARCHAR(36) {reference}")
    else:
        op.add_column("ports", sa.Column("primary_id", sa.String(length=36)))
        op.create_foreign_key(_NAME, "ports", "ports", ["primary_id"], ["id"], ondelete="CASCADE")
    present = sa.text("primary_id IS NOT NULL")
    op.create_index("ix_ports_primary_id", "ports", ["primary_id"], sqlite_where=present, postgresql_where=present)
