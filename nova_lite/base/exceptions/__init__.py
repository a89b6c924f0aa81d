"""Every error nova_lite raises on purpose. Callers write ``exceptions.InstanceNotFound``, whichever module has it.

::

    NovaLiteException (500)
    ├── Invalid (400): ValidationError, InvalidInput, ImageUnacceptable, FlavorDiskTooSmall, NetworkUnavailable, ...
    ├── Unauthorized (401)
    │   └── TooManyFailures (429)
    ├── Forbidden (403): PolicyNotAuthorized, QuotaExceeded, ...
    │   └── ImageQuotaExceeded (413)
    ├── NotFound (404): InstanceNotFound, FlavorNotFound, ImageNotFound, ...
    ├── InvalidGlobalAPIVersion (406)
    ├── Conflict (409): InstanceInvalidState, InstanceIsLocked, *Exists, ...
    ├── Gone (410)
    ├── VolumeQuotaExceeded (413)
    ├── IdempotencyKeyReused (422)
    ├── TooManyRequests (429)
    ├── NotImplementedByDriver, NotServed, ProviderUnsupportedOption (501)
    ├── ServiceUnavailable (503)
    │   ├── DatabaseUnavailable (QueryTooSlow), MessagingUnavailable, MessageRefused, ServiceTooOld
    │   ├── SchedulerNotReady, HeartbeatIsOld, ComputeHostUnavailable, VolumeNotReady
    │   ├── ImageServiceUnavailable, NetworkServiceUnavailable, VolumeServiceUnavailable
    │   └── HostNotAdmitted: HostForcedDown, HostIsAnother, HostEpochOver
    ├── ConfigurationError (a daemon ends with it)
    └── errors between daemons (500)
        ├── NoValidHost, ComputeResourcesUnavailable
        ├── StaleReport, InstanceGone, ActionOver, Fenced
        ├── PortBindingFailed
        └── VirtDriverError: DomainNotFound, HypervisorUnavailable, MigrationFailed, ImageCorrupt, ...

- `api`: errors of requests: malformed input, versions, sorting, paging, and policy
- `base`: base classes of all errors
- `consoles`: errors of consoles
- `flavors`: errors of flavors and of guest hardware
- `hosts`: errors of services, compute hosts, aggregates, and server groups
- `identity`: errors of the identity service
- `images`: errors of images
- `instances`: errors of instances: states, locks, metadata, tags, and actions
- `keypairs`: errors of key pairs
- `moves`: errors of resizes, migrations, and evacuations
- `networks`: errors of networks, ports, addresses, and security groups
- `protocol`: errors that daemons report to each other: claims, generations, host admission, and scheduling
- `quotas`: errors of quotas and limits
- `rpc`: errors of messages between daemons, and of the database behind the conductor
- `virt`: errors of hypervisors, guests, and image files on a compute host
- `volumes`: errors of volumes, snapshots, and block device mappings
"""

from nova_lite.base.exceptions.api import *
from nova_lite.base.exceptions.base import *
from nova_lite.base.exceptions.consoles import *
from nova_lite.base.exceptions.flavors import *
from nova_lite.base.exceptions.hosts import *
from nova_lite.base.exceptions.identity import *
from nova_lite.base.exceptions.images import *
from nova_lite.base.exceptions.instances import *
from nova_lite.base.exceptions.keypairs import *
from nova_lite.base.exceptions.moves import *
from nova_lite.base.exceptions.networks import *
from nova_lite.base.exceptions.protocol import *
from nova_lite.base.exceptions.quotas import *
from nova_lite.base.exceptions.rpc import *
from nova_lite.base.exceptions.virt import *
from nova_lite.base.exceptions.volumes import *

#: The module name of every error on the bus, whichever module defines it.
WIRE_MODULE = __name__

for _kind in [*globals().values()]:
    if isinstance(_kind, type) and issubclass(_kind, NovaLiteException):
        _kind.__module__ = WIRE_MODULE
