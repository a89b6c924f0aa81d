"""Configuration of a cloud in one process."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path

from oslo_config import cfg
from oslo_log import log

from nova_lite import conf as nova_conf
from nova_lite.base import exceptions
from nova_lite.conf import libraries

#: File of the paste.deploy pipelines: a link to etc/nova-lite/api-paste.ini.
PASTE_FILE = Path(__file__).with_name("api-paste.ini")

#: Name in ``[api] enabled_apis`` and path of each API.
PATHS = {
    "osapi_compute": "/compute",
    "identity": "/identity",
    "image": "/image",
    "network": "/network",
    "volume": "/volume",
    "placement": "/placement",
    "metadata": "/metadata",
    "page": "/page",
    "load_balancer": "/load_balancer",
}
#: APIs of wings, which a file of more options loads and enables.
_OF_WINGS = frozenset({"load_balancer"})

#: File of master keys in a cloud's directory.
VOLUME_KEYS = "volume-keys"

_TEMPLATE = """
[DEFAULT]
host = controller
my_ip = 127.0.0.1
state_path = {directory}
compute_driver = {driver}
use_stderr = true

[rpc]
self_check_interval = 0

[metrics]
enabled = false

[database]
connection = sqlite:///{directory}/cloud.sqlite

[api]
enabled_apis = {apis}
auth_strategy = standalone
paste_config = {paste}
graceful_shutdown_timeout = 2
metadata_requests_per_minute = 0
use_forwarded_for = true
# Tests share a busy machine with the cloud: a late request is better than a refused one.
max_wait = 60

[identity]
users_file = {directory}/identity/users.yaml
tokens_path = {directory}/identity
token_expiration = 86400
compute_endpoint = {url}/compute/v2.1
identity_endpoint = {url}/identity/v3
image_endpoint = {url}/image
network_endpoint = {url}/network
volume_endpoint = {url}/volume/v3
placement_endpoint = {url}/placement
load_balancer_endpoint = {url}/load_balancer

[image]
store_path = {large}/images
min_free_mb = 16

[volume]
store_path = {large}/volumes
backup_path = {large}/backups
encryption_key_file = {directory}/{volume_keys}

[conductor]
single_cpu = false

[fake]
vcpus = 64
memory_mb = 262144
disk_gb = 4096

[vnc]
novncproxy_base_url = http://{console_host}:{novnc}/vnc_lite.html

[serial_console]
enabled = true
base_url = ws://{console_host}:{serial}/

[oslo_concurrency]
lock_path = {directory}/locks
"""


def write(directory: str, large: str, url: str, driver: str, console_ports: Mapping[str, int]) -> str:
    """Write the configuration file of a cloud. Return its path. ``large``: the directory of images and volumes.
    ``console_ports``: ports of the console proxies, ``novnc`` and ``serial``.

    Raises `ConfigurationError` for a path that oslo.config would change.
    """
    for used in (directory, large, str(PASTE_FILE)):
        if "$" in used:
            raise exceptions.ConfigurationError(
                reason=f"{used}: the path must not have a $; set TMPDIR to another one."
            )
    text = _TEMPLATE.format(
        directory=directory,
        large=large,
        url=url,
        driver=driver,
        apis=", ".join(name for name in PATHS if name not in _OF_WINGS),
        paste=PASTE_FILE,
        volume_keys=VOLUME_KEYS,
        console_host=_host_of(url),
        **console_ports,
    )
    path = Path(directory, "nova-lite.conf")
    path.touch(0o600)  # URLs of database and broker have passwords.
    path.write_text(text)
    return str(path)


def _host_of(url: str) -> str:
    host = urllib.parse.urlsplit(url).hostname or ""
    return f"[{host}]" if ":" in host else host


def load(files: Iterable[str], host: str | None = None) -> cfg.ConfigOpts:
    """Parse configuration files, later ones first. ``host``: name of the compute host that they are for."""
    conf = cfg.ConfigOpts()
    nova_conf.register_opts(conf)
    log.register_options(conf)
    libraries.set_log_defaults()
    arguments = [argument for path in files for argument in ("--config-file", path)]
    try:
        conf(arguments, project="nova-lite", prog="nova-lite dev", default_config_files=[], default_config_dirs=[])
        if host is not None:
            conf.set_override("host", host)
        nova_conf.check(conf)
    except (cfg.Error, ValueError) as error:
        raise exceptions.ConfigurationError(reason=nova_conf.described(error)) from error
    return conf
