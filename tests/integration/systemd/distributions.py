"""The first command of the README on the releases of distributions: an empty machine becomes a cloud with a guest.

``devstack/distributions.sh`` starts it. Each machine is a container with debootstrap's smallest system, a clone of this
checkout, and a network of its own. slirp4netns, an ordinary process, carries its downloads. So nothing of the cloud
reaches this machine's interfaces and packet filters.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from tests.integration.systemd.debian import RELEASES, Release, ReleaseMachine, make_tree
from tests.integration.systemd.machine import DEADLINE, TOP

CHECKOUT = "/root/nova_lite"
#: The name server that slirp4netns is in the network of a machine.
NAME_SERVER = "10.0.2.3"
STACK = "devstack/stack.sh"
#: Certificates of authorities: the file of this machine, and its place in another machine, for pip and npm.
_AUTHORITIES, _BOUND_AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt"), "/srv/certificates.crt"


class Distribution(ReleaseMachine):
    """An empty machine of a release with a clone of this checkout."""

    def __init__(self, tree: pathlib.Path, release: Release) -> None:
        self._release = release
        super().__init__(tree, release.suite)

    def _make_tree(self) -> None:
        make_tree(self._release, self.tree)
        super()._make_tree()
        self.write("/etc/resolv.conf", f"nameserver {NAME_SERVER}\n")
        source = ("-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", str(TOP))
        subprocess.run(["git", *source, f"{self.tree}{CHECKOUT}"], check=True)

    def _programs(self) -> list[str]:
        bound = [f"--bind-ro={_AUTHORITIES}:{_BOUND_AUTHORITIES}"] if _AUTHORITIES.exists() else []
        return [*super()._programs(), *bound]

    def _plug(self) -> None:
        """Connect the machine by slirp4netns, and wait until its interface is there."""
        network = f"/proc/{self.init}/ns/net"
        command = ["slirp4netns", "--configure", "--disable-host-loopback", "--netns-type=path", network, "tap0"]
        ready, reports = os.pipe()
        with open(ready, "rb") as said:
            self._slirp = subprocess.Popen(
                [*command, f"--ready-fd={reports}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[reports],
            )
            os.close(reports)
            assert said.read(1) == b"1", "slirp4netns does not start."

    def stop(self) -> None:
        super().stop()
        self._slirp.kill()
        self._slirp.wait(DEADLINE)

    def attend(self, command: str) -> int:
        """Run a command of the shell in the clone, with this machine's settings of pip and npm. Returns its status."""
        settings = {name: value for name, value in os.environ.items() if name.lower().startswith(("pip_", "npm_"))}
        if _AUTHORITIES.exists():
            settings["PIP_CERT"] = settings["NODE_EXTRA_CA_CERTS"] = _BOUND_AUTHORITIES
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        enter = ["nsenter", "--target", str(self.init), "-m", "-u", "-i", "-n", "-p", "--"]
        # A unit of the machine's own systemd: a shell that only enters is in no group of its processes, and so the
        # containers of tests do not start.
        unit = ["systemd-run", "--quiet", "--wait", "--pipe", "--collect", "--property=Delegate=yes"]
        variables = [f"--setenv={name}={value}" for name, value in {**settings, "HOME": "/root", "PATH": path}.items()]
        run = [*enter, *unit, *variables, f"--working-directory={CHECKOUT}", "bash", "-c", command]
        return subprocess.run(run, stdin=subprocess.DEVNULL, check=False).returncode


def try_release(release: Release, commands: list[str], waits: bool) -> str | None:
    """Run commands on an empty machine of a release, and return the first failing command."""
    with tempfile.TemporaryDirectory(prefix="nova-lite-distribution.", dir="/var/tmp") as directory:
        began = time.monotonic()
        print(f"=== {release.suite}: debootstrap ...", end=" ", flush=True)
        machine = Distribution(pathlib.Path(directory, release.suite), release)
        try:
            machine.allow_guests()
            print(f"{time.monotonic() - began:.0f} s", flush=True)
            failed = next((command for command in commands if _fails(machine, release, command)), None)
            if waits:
                print(f"nsenter --target {machine.init} -m -u -i -n -p -C bash    enters it, until Ctrl-C", flush=True)
                signal.sigwait([signal.SIGINT])
            return failed
        finally:
            machine.stop()


def _fails(machine: Distribution, release: Release, command: str) -> bool:
    began = time.monotonic()
    print(f"=== {release.suite}: {command}", flush=True)
    status = machine.attend(command)
    print(f"=== {release.suite}: status {status} of {command} after {time.monotonic() - began:.0f} s", flush=True)
    return status != 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="devstack/distributions.sh", description=__doc__)
    suites = {release.suite: release for release in RELEASES}
    parser.add_argument("suites", metavar="SUITE", nargs="*", help=f"{', '.join(suites)}; all of them by default")
    parser.add_argument(
        "--then", metavar="COMMAND", action="append", default=[], help=f"run this after {STACK}; can be repeated"
    )
    parser.add_argument("--wait", action="store_true", help="keep each machine until Ctrl-C")
    args = parser.parse_args()
    if unknown := set(args.suites) - set(suites):
        parser.error(f"no release {', '.join(sorted(unknown))}: there are {', '.join(suites)}.")
    if args.wait:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    results = {
        suite: try_release(suites[suite], [STACK, *args.then], args.wait) for suite in args.suites or list(suites)
    }
    for suite, failed in results.items():
        print(f"{suite:10} {'passed' if failed is None else f'FAILED: {failed}'}")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main())
