"""Backend ``fake``, for tests of faults: built-in networks with a slow service in between.

The service is the directory ``network-service`` in ``[DEFAULT] state_path``. A file in it has the name of an instance,
and holds its ports. At the failpoints of its calls (`nova_lite.network.driver.load_backend`) it
fails, waits, or does not return.
"""

from __future__ import annotations

import os
import time
from typing import Any

from nova_lite.base import files
from nova_lite.network.driver import NetworkCall, NetworkMethod
from nova_lite.network.local import LocalNetworks


class FakeNetworks(LocalNetworks):
    """Built-in networks behind a simulated service."""

    remote = True

    def call(self, call: NetworkCall) -> Any:
        directory = os.path.join(self.conf.state_path, "network-service")
        time.sleep(self.conf.fake.network_delay)
        if call.method != NetworkMethod.RESOLVE:
            path = os.path.join(files.private_directory(directory), os.path.basename(call.instance_uuid))
            if call.method == NetworkMethod.DEALLOCATE:
                files.remove(path)
            else:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
