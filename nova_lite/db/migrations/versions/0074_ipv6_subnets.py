"""IPv6 subnets that the network API makes, and routers on them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import create_table
from nova_lite.objects import ipv6

revision = "0074"
down_revision = "0078"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("networks", sa.Column("subnet6", sa.JSON(), nullable=True))
    op.add_column("networks", sa.Column("subnet6_id", sa.String(36), nullable=True))
    op.create_index("ix_networks_subnet6_id_cidr6", "networks", ["subnet6_id", "cidr6"])
    _name_subnets()
    create_table(
        "router_interfaces6",
        sa.Column("port_id", sa.String(36), nullable=False),
        sa.Column("router_id", sa.String(36), nullable=False),
        sa.Column("network_id", sa.String(36), nullable=False),
        sa.ForeignKeyConstraint(["port_id"], ["ports.id"], name="fk_router_interfaces6_port_id"),
        sa.ForeignKeyConstraint(["router_id"], ["routers.id"], name="fk_router_interfaces6_router_id"),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_router_interfaces6_network_id"),
        sa.PrimaryKeyConstraint("port_id", name="pk_router_interfaces6"),
        sa.UniqueConstraint("network_id", name="uq_router_interfaces6_network_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_router_interfaces6_router_id", "router_interfaces6", ["router_id"])


def _name_subnets() -> None:
    """Write the id of the IPv6 subnet that a network has or may get, which follows from the network's id."""
    networks = sa.table("networks", sa.column("id"), sa.column("subnet6_id"))
    ids = op.get_bind().scalars(sa.select(networks.c.id)).all()
    if ids:
        named = sa.update(networks).where(networks.c.id == sa.bindparam("network_id"))
        values = [{"network_id": network_id, "subnet6_id": ipv6.subnet_id(network_id)} for network_id in ids]
        op.get_bind().execute(named.values(subnet6_id=sa.bindparam("subnet6_id")), values)
