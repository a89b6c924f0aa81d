"""An instance may hold two claims, one per end of a move; and calls to the network service that may be under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import TIME

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

OLD = "uq_allocations_instance_uuid_compute_node_id"


def upgrade() -> None:
    op.add_column("instances", sa.Column("network_call_until", TIME, nullable=True))
    with op.batch_alter_table("allocations") as table:
        table.create_unique_constraint(f"{OLD}_generation", ["instance_uuid", "compute_node_id", "generation"])
        table.drop_constraint(OLD, type_="unique")
