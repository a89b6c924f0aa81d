"""Connector for volumes in files, with the signatures of os-brick's."""

from __future__ import annotations

from typing import Any


def get_connector_properties(
    root_helper: str, my_ip: str, multipath: bool, enforce_multipath: bool, host: str | None = None
) -> dict[str, Any]:
    return {"host": host, "ip": my_ip, "multipath": multipath}


class InitiatorConnector:
    def __init__(self, mounts: str) -> None:
        self._mounts = mounts

    @staticmethod
    def factory(
        protocol: str,
        root_helper: str,
        *,
        use_multipath: bool = False,
        conn: Any = None,
        nfs_mount_point_base: str = "",
    ) -> InitiatorConnector:
        assert protocol == "NFS"
        return InitiatorConnector(nfs_mount_point_base)

    def connect_volume(self, properties: dict[str, Any]) -> dict[str, Any]:
        """Return the path of the file in the share, which is not mounted."""
        return {"path": f"{self._mounts}/share/{properties['name']}"}

    def disconnect_volume(self, properties: dict[str, Any], device_info: Any) -> None:
        """Leave the share mounted, as os-brick does."""
