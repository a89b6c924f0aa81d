"""A program that answers QMP as qemu does, without a guest: the tests run it under qemu's name.

The directory ``$FAKE_QEMU`` has a line for each command (``commands``), and the ``arguments``. Further files make it
behave otherwise:

- ``fails``: the command that is refused
- ``keeps``: the guest releases nothing, and jobs do not end
- ``ignores``: the guest ignores its power button
- ``lingers``: seconds between the end of its monitor and that of its process
- ``status``: the state of the guest
- ``dies``: the last word of a qemu that does not start
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from typing import Any


def path(name: str) -> str:
    return os.path.join(os.environ["FAKE_QEMU"], name)


def read(name: str) -> str:
    """Return the content of a file; "" if it does not exist."""
    if not os.path.exists(path(name)):
        return ""
    with open(path(name)) as file:
        return file.read()


class Machine:
    def __init__(self, arguments: list[str]) -> None:
        self.status = "prelaunch"
        values = [json.loads(word) for word in arguments if word.startswith("{")]
        self.devices = {value["id"] for value in values if "driver" in value and "id" in value}
        self.nodes = {value["node-name"]: 0 for value in values if "node-name" in value}
        self.jobs: list[dict[str, str]] = []
        self.ends = False

    def run(self, command: str, arguments: dict[str, Any]) -> Any:
        method = getattr(self, "do_" + command.replace("-", "_"), None)
        return {} if method is None else method(**{name.replace("-", "_"): arguments[name] for name in arguments})

    def do_query_status(self) -> dict[str, str]:
        self.status = read("status") or self.status
        return {"status": self.status}

    def do_cont(self) -> dict[str, str]:
        self.status = "running"
        return {}

    def do_stop(self) -> dict[str, str]:
        self.status = "paused"
        return {}

    def do_system_powerdown(self) -> dict[str, str]:
        self.status = self.status if os.path.exists(path("ignores")) else "shutdown"
        return {}

    def do_quit(self) -> dict[str, str]:
        self.ends = True
        return {}

    def do_qom_list(self, path: str) -> list[dict[str, str]]:
        return [{"name": name} for name in sorted(self.devices)]

    def do_query_named_block_nodes(self, flat: bool) -> list[dict[str, Any]]:
        return [{"node-name": name, "image": {"virtual-size": size}} for name, size in self.nodes.items()]

    def do_blockdev_add(self, node_name: str, **_: Any) -> dict[str, str]:
        self.nodes[node_name] = 1024
        return {}

    def do_blockdev_del(self, node_name: str) -> dict[str, str]:
        del self.nodes[node_name]
        return {}

    def do_device_add(self, id: str, **_: Any) -> dict[str, str]:
        self.devices.add(id)
        return {}

    def do_device_del(self, id: str) -> dict[str, str]:
        if not os.path.exists(path("keeps")):
            self.devices.discard(id)
        return {}

    def do_blockdev_backup(self, job_id: str, **_: Any) -> dict[str, str]:
        self.jobs = [{"id": job_id, "status": "running"}]
        return {}

    def do_query_jobs(self) -> list[dict[str, str]]:
        found = [dict(job) for job in self.jobs]
        for job in self.jobs:
            job["status"] = "running" if os.path.exists(path("keeps")) else "concluded"
        return found

    def do_job_cancel(self, id: str) -> dict[str, str]:
        self.jobs = []
        return {}

    def do_job_dismiss(self, id: str) -> dict[str, str]:
        self.jobs = []
        return {}

    def do_query_migrate(self) -> dict[str, str]:
        return {"status": "failed" if os.path.exists(path("keeps")) else "completed"}

    def do_query_vnc(self) -> dict[str, Any]:
        return {"enabled": True, "service": "5907"}

    def do_query_chardev(self) -> list[dict[str, str]]:
        return [{"label": "serial0", "filename": "disconnected:tcp:127.0.0.1:10003,server=on"}]


def serve(machine: Machine, client: socket.socket) -> None:
    replies, requests = client.makefile("w"), client.makefile("r")
    print(json.dumps({"QMP": {}}), file=replies, flush=True)
    for line in requests:
        request = json.loads(line)
        command, arguments = request["execute"], request.get("arguments", {})
        with open(path("commands"), "a") as log:
            print(json.dumps([command, arguments]), file=log)
        print(json.dumps({"event": "RESUME"}), file=replies)
        if read("fails") == command:
            reply: dict[str, Any] = {"error": {"class": "GenericError", "desc": "no room"}}
        else:
            reply = {"return": machine.run(command, arguments)}
        print(json.dumps(reply), file=replies, flush=True)
        if machine.ends:
            return


def main() -> None:
    arguments = sys.argv[1:]
    if "--version" in arguments:
        print("QEMU emulator version 7.2.22 (Debian 1:7.2)")
        return
    if words := read("dies"):
        sys.exit(words)
    with open(path("arguments"), "w") as file:
        json.dump(arguments, file)
    match = re.search(r"id=monitor,fd=(\d+)", " ".join(arguments))
    assert match is not None
    listener = socket.socket(fileno=int(match[1]))
    machine = Machine(arguments)
    while not machine.ends:
        client, _ = listener.accept()
        with client:
            serve(machine, client)
    listener.close()
    time.sleep(float(read("lingers") or 0))


if __name__ == "__main__":
    main()
