"""Commands of openstackclient, each in a fork of a process that has loaded the client.

``openstack`` takes one to two seconds to start, and its tests run it thousands of times::

    openstack_forks.py serve SOCKET               print a line when the client is loaded, and run commands
    openstack_forks.py run SOCKET [ARGUMENT]...   run a command with this environment, directory and streams

The standard library alone is imported before ``serve``, so that ``run`` starts quickly.
"""

from __future__ import annotations

import gc
import io
import json
import os
import signal
import socket
import sys

MOST = 1 << 20
#: Plug-ins that a command would load.
GROUPS = ("openstack.cli", "openstack.cli.base", "openstack.cli.extension", "keystoneauth1.plugin")
ROOMS = ("compute.v2", "network.v2", "identity.v3", "image.v2", "volume.v3", "common")


def load() -> None:
    import stevedore
    from openstackclient import shell

    def skip(manager: object, point: object, error: BaseException) -> None:
        print(f"{point} is not loaded: {error}", file=sys.stderr)

    assert shell
    groups = (*GROUPS, *(f"openstack.{room}" for room in ROOMS), "cliff.formatter.list", "cliff.formatter.show")
    for group in groups:
        stevedore.ExtensionManager(group, on_load_failure_callback=skip)
    gc.freeze()


def serve(path: str) -> None:
    load()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            caller.sendall(str(execute(caller)).encode())
            os._exit(0)
        caller.close()


def execute(caller: socket.socket) -> int:
    """Run the command that the caller sends, and return its status."""
    from openstackclient import shell

    data, streams, _, _ = socket.recv_fds(caller, MOST, 3)
    while not data.endswith(b"\n"):
        data += caller.recv(MOST)
    command = json.loads(data)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(io.FileIO(number, mode, closefd=False)) for number, mode in enumerate(("r", "w", "w"))
    )
    os.environ.clear()
    os.environ.update(command["environment"])
    os.chdir(command["directory"])
    sys.argv = ["openstack", *command["arguments"]]
    try:
        status: object = shell.main()
    except SystemExit as ended:
        status = ended.code
    sys.stdout.flush()
    sys.stderr.flush()
    if status is None:
        return 0
    return status if isinstance(status, int) else 1


def run(path: str, arguments: list[str]) -> int:
    command = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
    data = json.dumps(command).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        sent = socket.send_fds(server, [data], [0, 1, 2])
        server.sendall(data[sent:])
        return int(server.recv(16) or b"1")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    sys.exit(run(sys.argv[2], sys.argv[3:]))
