"""Host with the driver of qemu without libvirt, as a daemon that a unit starts. It keeps one guest.

Usage: ``qemu_host.py INSTANCE``. It prints the guest's state at its start, and starts the guest if there is none.
"""

from __future__ import annotations

import pathlib
import signal
import sys

from oslo_config import cfg

from nova_lite import conf as configuration
from nova_lite.image import local
from nova_lite.virt.qemu.driver import QemuDriver
from tests.support.guests import make_image, make_instance, make_network, make_spec, make_vif

BLANK = pathlib.Path("/var/lib/nova-lite/blank.img")


def main() -> None:
    conf = cfg.ConfigOpts()
    configuration.register_opts(conf)
    conf([], default_config_files=[])
    driver = QemuDriver(conf, "h1", lambda image, target: local.copy(image, image.name, target))
    driver.init_host()
    (uuid,) = sys.argv[1:]
    found = {info.uuid: info.power_state.name for info in driver.guests.all()}
    print(f"guest: {found.get(uuid, 'none')}", flush=True)
    if uuid not in found:
        BLANK.write_bytes(bytes(1024**2))
        instance, vif = make_instance(uuid=uuid), make_vif(network=make_network(gateway=None))
        driver.networks.plug(instance, [vif])
        driver.guests.spawn(make_spec(instance=instance, vifs=[vif], image=make_image(BLANK)))
        print("guest: started", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
