"""A cloud of containers to play with: a controller and N hosts, made with the commands that operators run.

``devstack/cluster.sh N`` starts it. It lasts until the command is interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import signal
import sys
import tempfile

from tests.integration.systemd.bare_machine import SET_UP_SECONDS, VENV, BareMachine

CONTROLLER = "192.0.2.10"
FIRST_HOST = 11
MAX_HOSTS = 20
_SETUP, _MANAGE = f"{VENV}/bin/nova-lite-setup", f"{VENV}/bin/nova-lite-manage"


def main() -> int:
    parser = argparse.ArgumentParser(prog="devstack/cluster.sh", description=__doc__)
    parser.add_argument("hosts", metavar="N", type=int, choices=range(MAX_HOSTS + 1), help="number of hosts")
    hosts = parser.parse_args().hosts
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
        directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nova-lite-cluster.")))
        _make(stack, directory, hosts)
        print("\nThe cloud lasts until you press Ctrl-C.", flush=True)
        signal.pause()
    return 0


def _make(stack: contextlib.ExitStack, directory: pathlib.Path, hosts: int) -> None:
    print("controller ...", flush=True)
    controller = BareMachine(directory / "controller")
    stack.callback(controller.stop)
    controller.add_address(CONTROLLER)
    controller.run(_SETUP, "controller", "--address", CONTROLLER, seconds=SET_UP_SECONDS)
    machines = [controller]
    for number in range(hosts):
        name = f"h{number + 1}"
        print(f"{name} ...", flush=True)
        host = BareMachine(directory / name, name)
        stack.callback(host.stop)
        host.allow_guests()
        controller.connect(host, f"192.0.2.{FIRST_HOST + number}")
        token = controller.run(_MANAGE, "host", "token").strip()
        host.run(_SETUP, "compute", token, seconds=SET_UP_SECONDS)
        machines.append(host)
    print(controller.run(_MANAGE, "service", "list"), "Enter a machine:", sep="\n")
    for machine in machines:
        print(f"    {machine.name}: nsenter --target {machine.init} -m -u -i -n -p -C bash")


if __name__ == "__main__":
    sys.exit(main())
