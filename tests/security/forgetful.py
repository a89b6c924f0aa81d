"""Run the API with routes that forget whose a thing is: ``python -m tests.security.forgetful nova_lite.cmd.api …``.

This is how it is shown that the attack notices (`tests.security.test_member`).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

from nova_lite.api.compute.servers.routes import Servers
from nova_lite.api.http import wsgi
from nova_lite.api.image.images import Images
from nova_lite.api.network.networks import Networks
from nova_lite.api.network.ports import Ports
from nova_lite.api.volume.volumes import Volumes

#: Service and route, whose handler asks for any project's.
FORGETS: dict[tuple[str, str], tuple[type, str]] = {
    ("compute", "/servers/{id}"): (Servers, "show"),
    ("compute", "/os-volumes_boot/{id}"): (Servers, "show"),
    ("image", "/images/{id}"): (Images, "show"),
    ("volume", "/volumes/{id}"): (Volumes, "show"),
    ("network", "/ports/{id}"): (Ports, "show"),
    ("network", "/ports/{id}/tags"): (Ports, "show"),
    ("network", "/ports/{id}/tags/{tag}"): (Ports, "show"),
    ("network", "/networks"): (Networks, "index"),
}


def for_all_projects(handler: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(handler)
    def forgetful(self: Any, req: Any, **variables: Any) -> Any:
        req.environ[wsgi.CONTEXT] = req.context.elevated()
        return handler(self, req, **variables)

    return forgetful


def main() -> int:
    daemon = importlib.import_module(sys.argv.pop(1))
    for app, name in set(FORGETS.values()):
        setattr(app, name, for_all_projects(getattr(app, name)))
    status: int = daemon.main()
    return status


if __name__ == "__main__":
    sys.exit(main())
