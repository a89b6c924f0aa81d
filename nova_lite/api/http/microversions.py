"""Microversions of the compute API: which there are, what each changed, and how a request asks for one.

A handler asks ``req.has(Change.TAGS)``; a route or a schema is valid for a range of versions. `Change` is the one
table of what changed when, for the resources that are served here.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from nova_lite.base import exceptions

T = TypeVar("T")

HEADER = "OpenStack-API-Version"
LEGACY_HEADER = "X-OpenStack-Nova-API-Version"
SERVICE = "compute"

_FORMAT = re.compile(r"[1-9]\d{0,8}\.(?:[1-9]\d{0,8}|0)", re.ASCII)


class Change(enum.IntEnum):
    """The minor version from which something holds."""

    KEYPAIR_TYPE = 2  # keypairs have a type; create answers 201, delete 204
    SERVER_EXTENDED_ATTRIBUTES = 3  # hostname, reservation id, launch index, user data, ...
    FILTER_IP6 = 5  # anybody may filter servers by ip6
    NO_CONSOLE_ACTIONS = 6  # console URLs are asked from remote-consoles, not by an action
    FLAVOR_ACCESS_PRIVATE_ONLY = 7  # no access can be added to a public flavor
    MKS_CONSOLE = 8
    SERVER_LOCKED = 9
    KEYPAIR_USER = 10  # admins handle other users' keypairs
    SERVICE_FORCED_DOWN = 11
    SERVER_GROUP_OWNER = 13  # a server group shows its project and user
    EVACUATE_AUTO = 14  # evacuate takes no onSharedStorage, and answers without the password
    SERVER_GROUP_SOFT_POLICIES = 15
    SERVER_HOST_STATUS = 16
    SERVER_DESCRIPTION = 19
    ACTIONS_OF_DELETED = 21  # the action log of a deleted server can be read
    MIGRATION_FORCE_COMPLETE = 22
    SERVER_MIGRATIONS = 23
    MIGRATION_ABORT = 24
    BLOCK_MIGRATION_AUTO = 25  # os-migrateLive finds out about disks itself, and loses disk_over_commit
    SERVER_TAGS = 26
    CPU_INFO_OBJECT = 28  # a hypervisor's cpu_info is an object, not a string
    EVACUATE_FORCE = 29
    CONSOLE_TOKENS_OF_ALL_TYPES = 31
    DEVICE_TAGS = 32  # networks and block devices take a tag ...
    HYPERVISOR_PAGING = 33
    KEYPAIR_PAGING = 35
    NO_PROXIES = 36  # images and networks are asked from their own services
    LIVE_MIGRATE_FORCE = 30
    NETWORKS_REQUIRED = 37  # "networks" must be given: "auto", "none" or a list; a tag was lost by accident
    STATUS_CHECKED = 38  # an unknown status in a server filter is an error
    NO_IMAGE_METADATA = 39  # nor do images' metadata go through here; limits lose maxImageMeta
    USAGE_PAGING = 40
    AGGREGATE_UUID = 41
    DEVICE_TAGS_AGAIN = 42
    NO_HOSTS = 43  # hosts are asked as hypervisors and services
    NO_ADDRESS_ACTIONS = 44  # nor are fixed and floating addresses given to servers here
    IMAGE_ID = 45  # createImage and createBackup answer the image's id, not its location
    FLAVOR_EMBEDDED = 47  # a server shows its flavor's properties, not a link
    STANDARD_DIAGNOSTICS = 48  # a server's diagnostics have the same keys whatever its hypervisor
    ATTACHMENT_TAGS = 49  # of volumes and interfaces that are attached later
    QUOTA_CLASS_KEYS = 50  # quota classes gain server groups and lose the network's resources
    ACTION_EVENTS_FOR_OWNER = 51
    VOLUME_EXTENDED = 51  # events from outside, here and below
    SERVER_CREATE_TAGS = 52
    UUIDS_OF_SERVICES = 53  # services and hypervisors are named by uuid
    REBUILD_KEY = 54  # a rebuild may change the key
    FLAVOR_DESCRIPTION = 55
    MIGRATE_HOST = 56  # migrate takes the host to go to
    NO_PERSONALITY = 57  # a rebuild may change user data instead
    ACTION_PAGING = 58  # and updated_at
    MIGRATION_PAGING = 59
    FLAVOR_EXTRA_SPECS = 61
    ACTION_EVENT_HOST = 62
    TRUSTED_CERTIFICATES = 63
    SERVER_GROUP_POLICY = 64  # one policy with rules, not a list of policies
    ABORT_QUEUED_MIGRATION = 65
    CHANGES_BEFORE = 66
    VOLUME_TYPE = 67
    NO_FORCE = 68  # evacuate loses force
    INTERFACE_TAGS = 70
    SERVER_GROUPS = 71  # show and update tell the server's groups
    LOCKED_REASON = 73  # and locked as filter and sort key
    REQUESTED_DESTINATION = 74  # host and hypervisor_hostname at create
    STRICT_QUERIES = 75  # unknown query parameters are errors; swap 0; update answers like show
    AGGREGATE_IMAGES = 81  # hosts of an aggregate can be told to cache images
    POWER_UPDATE = 76
    UNSHELVE_TO_ZONE = 77
    TOPOLOGY = 78
    DELETE_ON_TERMINATION = 79  # attachments of volumes tell it, and take it
    MIGRATION_OWNERS = 80  # migrations tell and filter by user and project
    ACCELERATOR_BOUND = 82
    USER_FILTERS = 83  # more server filters for everybody
    ACTION_EVENT_DETAILS = 84
    ATTACHMENT_UPDATE = 85  # PUT changes delete_on_termination
    EXTRA_SPECS_CHECKED = 86
    RESCUE_OF_VOLUMES = 87  # a server that boots from a volume can be rescued
    NO_HYPERVISOR_STATISTICS = 88
    ATTACHMENT_IDS = 89  # in place of id, which was the volume's
    SERVER_HOSTNAME = 90
    UNSHELVE_TO_HOST = 91  # and to any zone
    KEYPAIR_IMPORT_ONLY = 92  # keys are no longer generated; names may hold @ and .
    VOLUME_REIMAGED = 93  # a rebuild makes the volume anew that a server boots from
    FQDN_HOSTNAME = 94
    EVACUATE_STOPPED = 95  # an evacuated server is off in the end
    PINNED_ZONE = 96
    SHARES = 97  # of a file share service, in servers
    IMAGE_PROPERTIES = 98  # a server shows the properties that its image had
    SPICE_DIRECT = 99  # a type of console; tokens tell a TLS port
    SCHEDULER_HINTS = 100  # a server shows the hints that it was made with
    ATTACH_ACCEPTED = 101  # attaching a volume is answered before it is done
    NO_UNKNOWN_QUERIES = 102  # nowhere; flavors are filtered by name and lose rxtx_factor and disabled
    NO_VOLUMES_BOOT = 103
    ZONE_PINNED_LATER = 104  # PUT /servers/{id} pins to the zone, and unpins


#: The last minor version in which images, networks and volumes are served here, as proxies of their own services.
LAST_WITH_PROXIES = Change.NO_PROXIES - 1


class Version(NamedTuple):
    """A microversion; compares as its two numbers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


MINIMUM = Version(2, 1)
MAXIMUM = Version(2, 104)


class Versioned(Generic[T]):
    """One value per range of versions: ``Versioned({1: a, Change.SERVER_DESCRIPTION: b})``."""

    def __init__(self, values: Mapping[int, T]) -> None:
        self._values = sorted(values.items(), reverse=True)

    def at(self, version: Version) -> T:
        return next(value for since, value in self._values if version.minor >= since)

    def all(self) -> list[T]:
        return [value for _, value in self._values]

    def ranges(self) -> list[tuple[int, int | None, T]]:
        """First and last minor version (None: no end) of each value; the newest first."""
        found: list[tuple[int, int | None, T]] = []
        until = None
        for since, value in self._values:
            found.append((since, until, value))
            until = since - 1
        return found


def requested_version(headers: Any) -> Version:
    """The version that the request's headers ask for, of either family; `MINIMUM` without any.

    Raises `InvalidAPIVersionString` (400) or `InvalidGlobalAPIVersion` (406).
    """
    text = _version_text(headers)
    if text is None:
        return MINIMUM
    if text == "latest":
        return MAXIMUM
    if not _FORMAT.fullmatch(text):
        raise exceptions.InvalidAPIVersionString(version=text[:32])
    major, minor = text.split(".")
    version = Version(int(major), int(minor))
    if not MINIMUM <= version <= MAXIMUM:
        raise exceptions.InvalidGlobalAPIVersion(req_ver=version, min_ver=MINIMUM, max_ver=MAXIMUM)
    return version


def _version_text(headers: Any) -> str | None:
    """``compute X`` of the new header, which may name other services, too (the last one counts); else the old one."""
    for entry in reversed((headers.get(HEADER) or "").split(",")):
        service, _, text = entry.strip().partition(" ")
        if service.lower() == SERVICE:
            return text.strip().lower()
    legacy: str | None = headers.get(LEGACY_HEADER)
    return legacy.strip().lower() if legacy is not None else None


def response_headers(version: Version) -> dict[str, str]:
    return {
        HEADER: f"{SERVICE} {version}",
        LEGACY_HEADER: str(version),
        "Vary": f"{HEADER}, {LEGACY_HEADER}",
    }
