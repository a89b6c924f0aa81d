"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from nova_lite.db.migrations.tables import BIG_ID, LONG_TEXT, TIME, create_table

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    create_table(
        "flavors",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("root_gb", sa.Integer(), nullable=False),
        sa.Column("ephemeral_gb", sa.Integer(), nullable=False),
        sa.Column("swap", sa.Integer(), nullable=False),
        sa.Column("rxtx_factor", sa.Double(), nullable=False),
        sa.Column("is_public", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("extra_specs", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_flavors"),
        sa.UniqueConstraint("flavorid", name="uq_flavors_flavorid"),
        sa.UniqueConstraint("name", name="uq_flavors_name"),
    )
    create_table(
        "images",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("disk_format", sa.String(length=16), nullable=False),
        sa.Column("container_format", sa.String(length=16), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("checksum", sa.String(length=128), nullable=False),
        sa.Column("min_disk", sa.Integer(), nullable=False),
        sa.Column("min_ram", sa.Integer(), nullable=False),
        sa.Column("visibility", sa.String(length=16), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_images"),
    )
    op.create_index("ix_images_name", "images", ["name"], unique=False)
    create_table(
        "instance_actions",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("action", sa.String(length=32), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("request_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=True),
        sa.Column("project_id", sa.String(length=255), nullable=True),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("step", sa.String(length=32), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("lease_owner", sa.String(length=255), nullable=True),
        sa.Column("lease_expires_at", TIME, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("deadline", TIME, nullable=False),
        sa.Column("start_time", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.Column("finish_time", TIME, nullable=True),
        sa.Column("message", sa.String(length=255), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_instance_actions"),
    )
    op.create_index(
        "ix_instance_actions_finish_time_lease_expires_at",
        "instance_actions",
        ["finish_time", "lease_expires_at"],
        unique=False,
    )
    op.create_index("ix_instance_actions_instance_uuid_id", "instance_actions", ["instance_uuid", "id"], unique=False)
    op.create_index("ix_instance_actions_request_id", "instance_actions", ["request_id"], unique=False)
    create_table(
        "instances",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("display_name", sa.String(length=255), nullable=False),
        sa.Column("display_description", sa.String(length=255), nullable=True),
        sa.Column("hostname", sa.String(length=255), nullable=False),
        sa.Column("reservation_id", sa.String(length=255), nullable=False),
        sa.Column("launch_index", sa.Integer(), nullable=False),
        sa.Column("vm_state", sa.String(length=32), nullable=False),
        sa.Column("task_state", sa.String(length=32), nullable=True),
        sa.Column("power_state", sa.Integer(), nullable=False),
        sa.Column("progress", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("node", sa.String(length=255), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("availability_zone", sa.String(length=255), nullable=True),
        sa.Column("requested_availability_zone", sa.String(length=255), nullable=True),
        sa.Column("image_ref", sa.String(length=255), nullable=False),
        sa.Column("kernel_id", sa.String(length=255), nullable=False),
        sa.Column("ramdisk_id", sa.String(length=255), nullable=False),
        sa.Column("root_device_name", sa.String(length=64), nullable=True),
        sa.Column("flavorid", sa.String(length=255), nullable=False),
        sa.Column("flavor", sa.JSON(), nullable=False),
        sa.Column("image", sa.JSON(), nullable=True),
        sa.Column("request", sa.JSON(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("key_name", sa.String(length=255), nullable=True),
        sa.Column("key_data", sa.Text(), nullable=True),
        sa.Column("user_data", LONG_TEXT, nullable=True),
        sa.Column("config_drive", sa.Boolean(), nullable=False),
        sa.Column("auto_disk_config", sa.Boolean(), nullable=False),
        sa.Column("locked", sa.Boolean(), nullable=False),
        sa.Column("locked_by", sa.String(length=16), nullable=True),
        sa.Column("access_ip_v4", sa.String(length=45), nullable=True),
        sa.Column("access_ip_v6", sa.String(length=45), nullable=True),
        sa.Column("metadata", sa.JSON(), nullable=False),
        sa.Column("system_metadata", sa.JSON(), nullable=False),
        sa.Column("security_groups", sa.JSON(), nullable=False),
        sa.Column("scheduler_hints", sa.JSON(), nullable=False),
        sa.Column("fault", sa.JSON(), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.Column("launched_at", TIME, nullable=True),
        sa.Column("terminated_at", TIME, nullable=True),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_instances"),
        sa.UniqueConstraint("uuid", name="uq_instances_uuid"),
    )
    op.create_index("ix_instances_deleted_created_at", "instances", ["deleted", "created_at"], unique=False)
    op.create_index("ix_instances_host_deleted", "instances", ["host", "deleted"], unique=False)
    op.create_index(
        "ix_instances_project_id_deleted_created_at", "instances", ["project_id", "deleted", "created_at"], unique=False
    )
    op.create_index("ix_instances_reservation_id", "instances", ["reservation_id"], unique=False)
    create_table(
        "key_pairs",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("user_id", sa.String(length=255), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("type", sa.String(length=16), nullable=False),
        sa.Column("public_key", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=255), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_key_pairs"),
        sa.UniqueConstraint("user_id", "name", name="uq_key_pairs_user_id_name"),
    )
    create_table(
        "networks",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("cidr", sa.String(length=64), nullable=False),
        sa.Column("gateway", sa.String(length=45), nullable=True),
        sa.Column("dns", sa.JSON(), nullable=False),
        sa.Column("bridge", sa.String(length=15), nullable=False),
        sa.Column("mtu", sa.Integer(), nullable=False),
        sa.Column("start", sa.String(length=45), nullable=False),
        sa.Column("end", sa.String(length=45), nullable=False),
        sa.Column("project_id", sa.String(length=255), nullable=True),
        sa.Column("is_default", sa.Boolean(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_networks"),
        sa.UniqueConstraint("name", name="uq_networks_name"),
    )
    create_table(
        "quota_limits",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("hard_limit", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_quota_limits"),
    )
    create_table(
        "quota_usages",
        sa.Column("project_id", sa.String(length=255), nullable=False),
        sa.Column("resource", sa.String(length=64), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("project_id", "resource", name="pk_quota_usages"),
    )
    create_table(
        "services",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("binary", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("version", sa.String(length=32), nullable=False),
        sa.Column("up", sa.Boolean(), nullable=False),
        sa.Column("disabled", sa.Boolean(), nullable=False),
        sa.Column("disabled_reason", sa.String(length=255), nullable=True),
        sa.Column("forced_down", sa.Boolean(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("availability_zone", sa.String(length=255), nullable=False),
        sa.Column("boot_id", sa.String(length=36), nullable=False),
        sa.Column("last_seen_up", TIME, nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_services"),
        sa.UniqueConstraint("host", "binary", name="uq_services_host_binary"),
        sa.UniqueConstraint("uuid", name="uq_services_uuid"),
    )
    create_table(
        "compute_nodes",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("uuid", sa.String(length=36), nullable=False),
        sa.Column("service_id", BIG_ID, nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("node", sa.String(length=255), nullable=False),
        sa.Column("inventory", sa.JSON(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("vcpus_used", sa.Integer(), nullable=False),
        sa.Column("memory_mb_used", sa.Integer(), nullable=False),
        sa.Column("disk_gb_used", sa.Integer(), nullable=False),
        sa.Column("cpu_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("ram_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("disk_allocation_ratio", sa.Double(), nullable=False),
        sa.Column("reserved", sa.JSON(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.Column("updated_at", TIME, nullable=True),
        sa.ForeignKeyConstraint(["service_id"], ["services.id"], name="fk_compute_nodes_service_id"),
        sa.PrimaryKeyConstraint("id", name="pk_compute_nodes"),
        sa.UniqueConstraint("host", "node", name="uq_compute_nodes_host_node"),
        sa.UniqueConstraint("uuid", name="uq_compute_nodes_uuid"),
    )
    create_table(
        "instance_action_events",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("action_id", BIG_ID, nullable=False),
        sa.Column("event", sa.String(length=255), nullable=False),
        sa.Column("start_time", TIME, nullable=False),
        sa.Column("finish_time", TIME, nullable=True),
        sa.Column("result", sa.String(length=16), nullable=True),
        sa.Column("traceback", LONG_TEXT, nullable=True),
        sa.Column("host", sa.String(length=255), nullable=True),
        sa.Column("details", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["action_id"], ["instance_actions.id"], name="fk_instance_action_events_action_id"),
        sa.PrimaryKeyConstraint("id", name="pk_instance_action_events"),
    )
    op.create_index("ix_instance_action_events_action_id", "instance_action_events", ["action_id"], unique=False)
    create_table(
        "instance_tags",
        sa.Column("instance_id", BIG_ID, nullable=False),
        sa.Column("tag", sa.String(length=60), nullable=False),
        sa.ForeignKeyConstraint(["instance_id"], ["instances.id"], name="fk_instance_tags_instance_id"),
        sa.PrimaryKeyConstraint("instance_id", "tag", name="pk_instance_tags"),
    )
    create_table(
        "ports",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("network_id", sa.String(length=36), nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("mac_address", sa.String(length=17), nullable=False),
        sa.Column("address", sa.String(length=45), nullable=False),
        sa.Column("tag", sa.String(length=60), nullable=True),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["instance_uuid"], ["instances.uuid"], name="fk_ports_instance_uuid"),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_ports_network_id"),
        sa.PrimaryKeyConstraint("id", name="pk_ports"),
        sa.UniqueConstraint("mac_address", name="uq_ports_mac_address"),
        sa.UniqueConstraint("network_id", "address", name="uq_ports_network_id_address"),
    )
    op.create_index("ix_ports_instance_uuid", "ports", ["instance_uuid"], unique=False)
    create_table(
        "allocations",
        sa.Column("id", BIG_ID, nullable=False),
        sa.Column("instance_uuid", sa.String(length=36), nullable=False),
        sa.Column("compute_node_id", BIG_ID, nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("vcpus", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("disk_gb", sa.Integer(), nullable=False),
        sa.Column("created_at", TIME, nullable=False),
        sa.ForeignKeyConstraint(["compute_node_id"], ["compute_nodes.id"], name="fk_allocations_compute_node_id"),
        sa.PrimaryKeyConstraint("id", name="pk_allocations"),
        sa.UniqueConstraint("instance_uuid", "compute_node_id", name="uq_allocations_instance_uuid_compute_node_id"),
    )
    op.create_index("ix_allocations_compute_node_id", "allocations", ["compute_node_id"], unique=False)
