"""A compute host's driver in a separate process in the namespaces of the second host's libvirtd, with its bridges and
filters.

It reads requests as lines of JSON, and answers each with one line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import msgspec

from nova_lite.objects import VIF, Image, Instance, PortFilters
from tests.integration.libvirt import hosts
from tests.support.guests import make_spec


class Remote:
    """Client for the tests. ``path``: its state directory."""

    def __init__(self, path: Path, name: str, address: str, number: str) -> None:
        command = [str(hosts.SCRIPT), "enter", number, sys.executable, "-m", __name__, str(path), name, address]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, what: str, **values: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what} | msgspec.to_builtins(values)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the driver of the second host ended at {what}"
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


class Commands:
    def __init__(self, path: str, name: str, address: str) -> None:
        self._driver = hosts.make_driver(Path(path), name, address, vxlan__local_ip=address)

    def boot(self, instance: Any, vifs: Any, image: Any, images: Any) -> None:
        spec = make_spec(
            instance=msgspec.convert(instance, Instance),
            vifs=msgspec.convert(vifs, list[VIF]),
            image=msgspec.convert(image, Image),
            images=msgspec.convert(images, dict[str, Image]),
        )
        self._driver.networks.plug(spec.instance, spec.vifs)
        self._driver.guests.spawn(spec)

    def filters(self, filters: Any) -> None:
        self._driver.filters.apply(msgspec.convert(filters, PortFilters))

    def console(self, uuid: str) -> str:
        return self._driver.consoles.output(uuid, None)

    def destroy(self, uuid: str) -> None:
        self._driver.guests.destroy(uuid)
        self._driver.networks.unplug(uuid)

    def links(self) -> list[str]:
        return sorted(path.name for path in Path("/sys/class/net").iterdir())


def main() -> None:
    commands = Commands(*sys.argv[1:])
    for line in sys.stdin:
        values = cast(dict[str, Any], json.loads(line))
        print(json.dumps(getattr(commands, values.pop("what"))(**values)), flush=True)


if __name__ == "__main__":
    main()
