"""A network service for tests of faults: the built-in networks, with a service in between that is slow and fails.

The service is a directory, ``[fake] network_path``: a file there, named by an instance, is what it holds for it. Each
call passes the hook points ``network/<verb>/before`` and ``/after``, at which it may fail, wait, or not come back; at
the second the service has done it already.
"""

from __future__ import annotations

import os
import time
from typing import Any

from nova_lite.base import exceptions, failpoints, files
from nova_lite.network.driver import NetworkCall, Verb
from nova_lite.network.local import LocalNetworks


class FakeNetworks(LocalNetworks):
    remote = True

    def call(self, call: NetworkCall) -> Any:
        directory = self.conf.fake.network_path or os.path.join(self.conf.state_path, "network-service")
        self._reach(call.verb, "before")
        time.sleep(self.conf.fake.network_delay)
        if call.verb != Verb.RESOLVE:
            held = os.path.join(files.private_directory(directory), os.path.basename(call.instance_uuid))
            if call.verb == Verb.DEALLOCATE:
                files.remove(held)
            else:
                files.write_atomically(held, b"")
        self._reach(call.verb, "after")

    @staticmethod
    def _reach(verb: str, where: str) -> None:
        if failpoints.reach("network", verb, where) == failpoints.ERROR:
            raise exceptions.ServiceUnavailable("A test has the network service fail.")
