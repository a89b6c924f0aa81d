"""Values that cross the message bus, as typed structs.

The package has the names of all its modules, so callers write ``from nova_lite.objects import Instance``. The structs
have no I/O, and no behaviour beyond what follows from their own fields. There is one module for each subject:

- `instance`, `flavor`, `image`, `metadef`, `keypair`, `block_device`, `share`, `point`, `server_group`, `usage`,
  `usage_history`, `diagnostics`, `console`, `guest_device`: servers
- `backup`, `replication`: backups of servers, and servers with a replica at another site
- `build`, `action`, `migration`, `live_migration`, `incident`: operations: requests, builds, actions, moves, and
  failures of guests
- `host`, `cpu`, `request_spec`, `numa`, `pci`, `aggregate`, `placement`: placement: services, nodes, host states,
  requests, and views
- `join`, `fencing`, `protection`, `storage`: hosts that join, and hosts that are lost
- `balance`, `health`: load and health of hosts
- `identity`, `network`, `ipv6`, `dhcp_options`, `network_api_resources`, `network_bulk`, `router`, `floating_ip`,
  `security_group`, `packet_probe`, `volume`, `quota`: other services
- `audit`: events of the audit log
- `listing`, `ready`: parts of lists, and preparation of structs for threads

All are `msgspec.Struct`. Unknown fields are ignored on decode, and new fields get defaults, so that daemons of two
neighbouring versions understand each other. A field whose Python name changed keeps its old name on the wire
(``msgspec.field(name=...)``). Sizes are MiB for memory and swap, GiB for disks. Times are naive UTC.
"""

from __future__ import annotations

import msgspec

from nova_lite.objects.action import *
from nova_lite.objects.aggregate import *
from nova_lite.objects.audit import *
from nova_lite.objects.backup import *
from nova_lite.objects.balance import *
from nova_lite.objects.block_device import *
from nova_lite.objects.build import *
from nova_lite.objects.console import *
from nova_lite.objects.cpu import *
from nova_lite.objects.diagnostics import *
from nova_lite.objects.fencing import *
from nova_lite.objects.flavor import *
from nova_lite.objects.floating_ip import *
from nova_lite.objects.guest_device import *
from nova_lite.objects.health import *
from nova_lite.objects.host import *
from nova_lite.objects.identity import *
from nova_lite.objects.image import *
from nova_lite.objects.incident import *
from nova_lite.objects.instance import *
from nova_lite.objects.join import *
from nova_lite.objects.keypair import *
from nova_lite.objects.listing import *
from nova_lite.objects.live_migration import *
from nova_lite.objects.metadef import *
from nova_lite.objects.migration import *
from nova_lite.objects.network import *
from nova_lite.objects.network_api_resources import *
from nova_lite.objects.network_bulk import *
from nova_lite.objects.numa import *
from nova_lite.objects.packet_probe import *
from nova_lite.objects.pci import *
from nova_lite.objects.placement import *
from nova_lite.objects.point import *
from nova_lite.objects.quota import *
from nova_lite.objects.ready import *
from nova_lite.objects.request_spec import *
from nova_lite.objects.router import *
from nova_lite.objects.security_group import *
from nova_lite.objects.server_group import *
from nova_lite.objects.share import *
from nova_lite.objects.storage import *
from nova_lite.objects.usage import *
from nova_lite.objects.usage_history import *
from nova_lite.objects.volume import *

prepare_decoders(*(kind for kind in globals().values() if isinstance(kind, type) and issubclass(kind, msgspec.Struct)))
