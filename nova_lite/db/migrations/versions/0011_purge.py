"""What is purged leaves its uuid; ids that others are told are not given again (SQLite); changes and usage are found by
indexes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME, create_table

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INDEXES = (
    ("project_id", "updated_at", "created_at"),
    ("updated_at", "created_at"),
    ("project_id", "terminated_at", "launched_at"),
    ("terminated_at", "launched_at"),
)

TOLD = ("services", "compute_nodes", "aggregates", "migrations", "instance_actions", "key_pairs")


def upgrade() -> None:
    create_table(
        "purged_instances",
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("purged_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_purged_instances"),
        sqlite_with_rowid=False,
    )
    for columns in INDEXES:
        op.create_index(f"ix_instances_{'_'.join(columns)}", "instances", list(columns))
    if op.get_bind().dialect.name == "sqlite":
        for table in TOLD:
            with op.batch_alter_table(table, recreate="always", table_kwargs={"sqlite_autoincrement": True}):
                pass
