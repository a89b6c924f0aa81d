"""Backend ``fake``, for tests of faults: built-in networks with a slow and failing service in between.

The service is a directory, ``[fake] network_path``. A file in it, named after an instance, is what the service has for
it. Each call passes the failpoints ``network/<method>/before`` and ``/after``, at which it may fail, wait, or not
return. At the second one the service has done its work already.
"""

from __future__ import annotations

import os
import time
from typing import Any

from nova_lite.base import exceptions, failpoints, files
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.network.local import LocalNetworks


class FakeNetworks(LocalNetworks):
    """Built-in networks behind a simulated service."""

    remote = True

    def call(self, call: NetworkCall) -> Any:
        directory = self.conf.fake.network_path or os.path.join(self.conf.state_path, "network-service")
        self._reach(call.method, "before")
        time.sleep(self.conf.fake.network_delay)
        if call.method != NetworkMethod.RESOLVE:
            path = os.path.join(files.private_directory(directory), os.path.basename(call.instance_uuid))
            if call.method == NetworkMethod.DEALLOCATE:
                files.remove(path)
            else:
                files.write_atomically(path, b"")
        self._reach(call.method, "after")

    @staticmethod
    def _reach(method: str, place: str) -> None:
        if failpoints.reach("network", method, place) == failpoints.ERROR:
            raise exceptions.ServiceUnavailable("A test makes the network service fail.")
