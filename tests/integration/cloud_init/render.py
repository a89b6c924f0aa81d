"""Renders ``network_data.json`` by the real cloud-init, in a process of its own.

    python render.py DIST_PACKAGES TARGET < JSON

``JSON`` has the document as ``data``, and the guest's devices as ``devices``: MAC address to name. The output has the
text of the files of each renderer, by its name.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

#: Renderer: module, and options with paths below the target.
RENDERERS: dict[str, tuple[str, dict[str, Any]]] = {
    "netplan": ("netplan", {"netplan_path": "netplan/config.yaml", "postcmds": False}),
    "networkd": ("networkd", {"network_conf_dir": "/networkd/"}),
    "ifupdown": ("eni", {"eni_path": "ifupdown/interfaces", "netrules_path": "ifupdown/rules"}),
}


def main(dist_packages: str, target: str) -> None:
    sys.path.append(dist_packages)
    logging.disable(logging.CRITICAL)
    convert = importlib.import_module("cloudinit.sources.helpers.openstack").convert_net_json
    parse = importlib.import_module("cloudinit.net.network_state").parse_net_config_data
    # The owner of networkd's files may not exist on this machine.
    importlib.import_module("cloudinit.util").chownbyname = lambda *_: None  # type: ignore[attr-defined]
    given = json.load(sys.stdin)
    config = convert(given["data"], known_macs=given["devices"])
    made: dict[str, str] = {}
    for name, (module, options) in RENDERERS.items():
        Path(target, name).mkdir()
        renderer = importlib.import_module(f"cloudinit.net.{module}").Renderer(options)
        renderer.render_network_state(parse(config), target=target)
        files = sorted(path for path in Path(target, name).rglob("*") if path.is_file() and path.name != "rules")
        made[name] = "\n".join(path.read_text() for path in files)
    print(json.dumps(made))


if __name__ == "__main__":
    main(*sys.argv[1:])
