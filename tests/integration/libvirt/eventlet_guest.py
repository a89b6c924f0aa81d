"""Runs a guest from boot to removal in a separate process in eventlet mode, while a green thread looks for stalls.

    python -m tests.integration.libvirt.eventlet_guest STATE_PATH IMAGE_FILE

Prints a JSON object: ``longest_gap`` (seconds in which no other green thread ran), ``events`` and ``left``.
"""

from __future__ import annotations

from nova_lite.base import concurrency

concurrency.setup(concurrency.EVENTLET)

# isort: split
import json  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import uuid  # noqa: E402
from pathlib import Path  # noqa: E402

from oslo_config import cfg  # noqa: E402

from nova_lite import conf as configuration  # noqa: E402
from nova_lite.image import local  # noqa: E402
from nova_lite.virt.libvirt.driver import LibvirtDriver  # noqa: E402
from tests.support.guests import make_image, make_instance, make_spec  # noqa: E402
from tests.support.waiting import wait_for  # noqa: E402


class Watch:
    """Measures the longest time between two runs of a thread that sleeps for 10 ms."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._stop = False
        self._thread = threading.Thread(target=self._tick)
        self._thread.start()

    def _tick(self) -> None:
        last = time.monotonic()
        while not self._stop:
            time.sleep(0.01)
            now = time.monotonic()
            self.longest = max(self.longest, now - last)
            last = now

    def stop(self) -> float:
        self._stop = True
        self._thread.join()
        return self.longest


def main(state_path: str, image_file: str) -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    conf.set_override("state_path", state_path)
    driver = LibvirtDriver(
        conf, f"eventlet-{uuid.uuid4().hex[:8]}", lambda image, target: local.copy(image, image.name, target)
    )
    driver.init_host()
    events: list[str] = []
    driver.wait_for_events(lambda instance_uuid, _: events.append(instance_uuid))
    spec = make_spec(instance=make_instance(), image=make_image(Path(image_file), "raw"))
    watch = Watch()
    driver.guests.spawn(spec)
    driver.power.off(spec.instance.uuid, 0)
    driver.power.on(spec.instance.uuid)
    gap = watch.stop()
    wait_for("three events", lambda: len(events) >= 3, 10)
    driver.guests.destroy(spec.instance.uuid)
    left = [info.uuid for info in driver.guests.all()] + sorted(driver.guests.leftovers())
    print(json.dumps({"longest_gap": gap, "events": len(events), "left": left}))


if __name__ == "__main__":
    main(*sys.argv[1:])
