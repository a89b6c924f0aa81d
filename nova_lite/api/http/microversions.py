"""Microversions of the compute API: which exist, what each changed, and how a request selects one.

A handler checks ``req.has(Change.SERVER_TAGS)``. A route or a schema is valid for a range of versions. `Change` is the
only table of what changed when.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import webob

from nova_lite.base import exceptions

T = TypeVar("T")

HEADER = "OpenStack-API-Version"
LEGACY_HEADER = "X-OpenStack-Nova-API-Version"
SERVICE = "compute"

_FORMAT = re.compile(r"[1-9]\d{0,8}\.(?:[1-9]\d{0,8}|0)", re.ASCII)


class Change(enum.IntEnum):
    """The minor version that introduced a change."""

    KEYPAIR_TYPE = 2  # keypairs have a type; create returns 201, delete 204
    SERVER_EXTENDED_ATTRIBUTES = 3  # hostname, reservation id, launch index, user data, ...
    FILTER_IP6 = 5  # all users may filter servers by ip6
    NO_CONSOLE_ACTIONS = 6  # console URLs come from remote-consoles, not from an action
    FLAVOR_ACCESS_PRIVATE_ONLY = 7  # no access can be added to a public flavor
    MKS_CONSOLE = 8
    SERVER_LOCKED = 9
    KEYPAIR_USER = 10  # admins manage other users' keypairs
    SERVICE_FORCED_DOWN = 11
    SERVER_GROUP_OWNER = 13  # a server group shows its project and user
    EVACUATE_AUTO = 14  # evacuate has no onSharedStorage, and returns no password
    SERVER_GROUP_SOFT_POLICIES = 15
    SERVER_HOST_STATUS = 16
    SERVER_DESCRIPTION = 19
    ACTIONS_OF_DELETED = 21  # the action log of a deleted server is readable
    MIGRATION_FORCE_COMPLETE = 22
    SERVER_MIGRATIONS = 23
    MIGRATION_ABORT = 24
    BLOCK_MIGRATION_AUTO = 25  # os-migrateLive detects shared disks, and loses disk_over_commit
    SERVER_TAGS = 26
    CPU_INFO_OBJECT = 28  # a hypervisor's cpu_info is an object, not a string
    EVACUATE_FORCE = 29
    LIVE_MIGRATE_FORCE = 30
    CONSOLE_TOKENS_OF_ALL_TYPES = 31
    DEVICE_TAGS = 32  # networks and block devices have a tag; Nova lost the tag in 2.33 by accident
    HYPERVISOR_PAGING = 33
    KEYPAIR_PAGING = 35
    NO_PROXIES = 36  # images, networks, and volumes have their own APIs
    NETWORKS_REQUIRED = 37  # "networks" is required: "auto", "none", or a list
    STATUS_CHECKED = 38  # an unknown status in a server filter is an error
    NO_IMAGE_METADATA = 39  # no metadata of images; limits lose maxImageMeta
    USAGE_PAGING = 40
    AGGREGATE_UUID = 41
    DEVICE_TAGS_AGAIN = 42  # the tags that 2.33 had lost
    NO_HOSTS = 43  # hypervisors and services replace hosts
    NO_ADDRESS_ACTIONS = 44  # no actions that add or remove fixed and floating addresses
    IMAGE_ID = 45  # createImage and createBackup return the image's id, not its location
    FLAVOR_EMBEDDED = 47  # a server shows its flavor's properties instead of a link
    STANDARD_DIAGNOSTICS = 48  # a server's diagnostics have the same keys whatever its hypervisor
    ATTACHMENT_TAGS = 49  # tags of volumes and interfaces that are attached to a server
    QUOTA_CLASS_KEYS = 50  # quota classes gain server groups and lose network resources
    ACTION_EVENTS_FOR_OWNER = 51
    VOLUME_EXTENDED = 51  # an external event; an alias of the member above
    SERVER_CREATE_TAGS = 52
    UUIDS_OF_SERVICES = 53  # services and hypervisors are identified by uuid
    REBUILD_KEY = 54  # a rebuild may change the key
    FLAVOR_DESCRIPTION = 55
    MIGRATE_HOST = 56  # migrate has a host parameter
    NO_PERSONALITY = 57  # no injected files; a rebuild may change user data
    ACTION_PAGING = 58  # the action log has pages and updated_at
    MIGRATION_PAGING = 59
    MULTIATTACH = 60  # servers share volumes with multiattach
    FLAVOR_EXTRA_SPECS = 61
    ACTION_EVENT_HOST = 62
    TRUSTED_CERTIFICATES = 63
    SERVER_GROUP_POLICY = 64  # one policy with rules instead of a list of policies
    ABORT_QUEUED_MIGRATION = 65
    CHANGES_BEFORE = 66
    VOLUME_TYPE = 67
    NO_FORCE = 68  # evacuate loses force
    INTERFACE_TAGS = 70
    SERVER_GROUPS = 71  # show and update return the server's groups
    LOCKED_REASON = 73  # also locked as filter and sort key
    REQUESTED_DESTINATION = 74  # host and hypervisor_hostname at create
    STRICT_QUERIES = 75  # unknown query parameters are errors; swap is 0; update returns the same as show
    POWER_UPDATE = 76
    UNSHELVE_TO_ZONE = 77
    TOPOLOGY = 78
    DELETE_ON_TERMINATION = 79  # volume attachments have this property
    MIGRATION_OWNERS = 80  # migrations show their user and project, and filter by them
    AGGREGATE_IMAGES = 81  # images can be cached on the hosts of an aggregate
    ACCELERATOR_BOUND = 82
    USER_FILTERS = 83  # more server filters for all users
    ACTION_EVENT_DETAILS = 84
    ATTACHMENT_UPDATE = 85  # PUT changes delete_on_termination
    EXTRA_SPECS_CHECKED = 86
    RESCUE_OF_VOLUMES = 87  # a server that boots from a volume can be rescued
    NO_HYPERVISOR_STATISTICS = 88
    ATTACHMENT_IDS = 89  # attachment_id and bdm_uuid replace id, which was the volume's
    SERVER_HOSTNAME = 90
    UNSHELVE_TO_HOST = 91  # also to any zone
    KEYPAIR_IMPORT_ONLY = 92  # keys are not generated any more; names may contain @ and .
    VOLUME_REIMAGED = 93  # a rebuild can reimage the boot volume
    FQDN_HOSTNAME = 94
    EVACUATE_STOPPED = 95  # an evacuated server stays stopped
    PINNED_ZONE = 96
    SHARES = 97  # shares of a file share service
    IMAGE_PROPERTIES = 98  # a server shows the properties of its image
    SPICE_DIRECT = 99  # a console type; console tokens show a TLS port
    SCHEDULER_HINTS = 100  # a server shows the scheduler hints of its creation
    ATTACH_ACCEPTED = 101  # attaching a volume returns 202 before it is done
    NO_UNKNOWN_QUERIES = 102  # strict queries everywhere; flavors lose rxtx_factor and disabled
    NO_VOLUMES_BOOT = 103
    ZONE_PINNED_LATER = 104  # PUT /servers/{id} pins a server to a zone, or unpins it


#: The last minor version in which images, networks and volumes are served here, as proxies of their own services.
LAST_WITH_PROXIES = Change.NO_PROXIES - 1


class Version(NamedTuple):
    """A microversion. Compares as a pair of numbers."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


MINIMUM = Version(2, 1)
MAXIMUM = Version(2, 104)


class Versioned(Generic[T]):
    """A value that depends on the minor version: ``Versioned({1: a, Change.SERVER_DESCRIPTION: b})``."""

    def __init__(self, values: Mapping[int, T]) -> None:
        self._values = sorted(values.items(), reverse=True)

    def at(self, version: Version) -> T:
        """Return the value of ``version``."""
        return next(value for since, value in self._values if version.minor >= since)

    def all(self) -> list[T]:
        """Return all values, the newest first."""
        return [value for _, value in self._values]

    def ranges(self) -> list[tuple[int, int | None, T]]:
        """Return the first and last minor version (None: no end) of each value, the newest first."""
        ranges: list[tuple[int, int | None, T]] = []
        until = None
        for since, value in self._values:
            ranges.append((since, until, value))
            until = since - 1
        return ranges


def requested_version(headers: Any) -> Version:
    """Return the version that the request's headers select, or `MINIMUM` if they select none.

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
    """Return X of ``compute X`` in the new header, else the text of the legacy header.

    The new header may list several services. Its last entry for compute counts.
    """
    for entry in reversed((headers.get(HEADER) or "").split(",")):
        service, _, text = entry.strip().partition(" ")
        if service.lower() == SERVICE:
            return text.strip().lower()
    legacy: str | None = headers.get(LEGACY_HEADER)
    return legacy.strip().lower() if legacy is not None else None


def name_version(response: webob.Response, version: Version) -> None:
    """Name the version in the headers of a response."""
    response.headers[HEADER] = f"{SERVICE} {version}"
    response.headers[LEGACY_HEADER] = str(version)
    response.vary = (HEADER, LEGACY_HEADER, *(response.vary or ()))
