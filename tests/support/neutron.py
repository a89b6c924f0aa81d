"""A Neutron to talk to over HTTP: a project's ports, as far as their rules matter to who makes them.

It gives a MAC address and an address once in a network, refuses an update of another revision than the port's, and
binds to the hosts that have an agent. ``late``: that many requests of a method are carried out, and answered only after
their caller has gone. ``status``: what everything is answered with meanwhile. ``notify``: what is done with a port
that was bound and is connected then, ``SECONDS`` later, in a thread.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests

from nova_lite.objects.pci import VIF_TYPES
from tests.support.waiting import polls

Body = dict[str, Any]

KINDS = {
    "networks": "network",
    "subnets": "subnet",
    "ports": "port",
    "security-groups": "security_group",
    "quotas": "quota",
}


SECONDS = 0.5
#: Seconds for which the cloud is notified of a connected port while its API does not listen.
NOTIFY_SECONDS = 10.0


class Refuse(Exception):
    def __init__(self, status: int, kind: str, message: str = "no") -> None:
        self.status, self.kind, self.message = status, kind, message


class FakeNeutron:
    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Body]] = {name: {} for name in (*KINDS, "rbac-policies")}
        self.hosts = {"host1", "host2"}
        self.late: dict[str, int] = {}
        self.gone = threading.Event()
        self.status = 0
        self.asked: list[str] = []
        self.notify: Callable[[Body], None] | None = None
        self._lock = threading.RLock()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None: ...

            def do(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                fake.asked.append(f"{self.command} {self.path}")
                try:
                    status, answer = fake.handle(self.command, self.path, body, self.headers.get("If-Match"))
                except Refuse as error:
                    status = error.status
                    answer = {"NeutronError": {"type": error.kind, "message": error.message, "detail": ""}}
                if fake.late.get(self.command, 0) > 0:
                    fake.late[self.command] -= 1
                    fake.gone.wait(30)
                    return
                data = b"" if status == 204 else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = do

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self.gone.set()
        self._server.shutdown()
        self._server.server_close()

    def options(self, timeout: float = 5) -> str:
        return self.options_of(self.url, timeout)

    @staticmethod
    def options_of(url: str, timeout: float = 5) -> str:
        return f"""
[neutron]
auth_type = none
endpoint = {url}
timeout = {timeout}
[network]
backend = neutron
"""

    def serve(self, running: Any) -> None:
        """Serve this `tests.functional.cloud.Cloud`: agents on its hosts connect ports and notify it."""
        self.hosts = set(running.computes)

        def notify(port: Body) -> None:
            event = {"name": "network-vif-plugged", "server_uuid": port["device_id"], "tag": port["id"]}
            body = {"events": [{**event, "status": "completed"}]}
            for _ in polls(NOTIFY_SECONDS, 0.5):
                with contextlib.suppress(requests.RequestException):
                    if running.request("POST", "/os-server-external-events", body, timeout=2).status_code < 500:
                        return

        self.notify = notify

    # --- what a test looks at, and puts there

    @property
    def ports(self) -> list[Body]:
        return list(self.rows["ports"].values())

    def add(self, what: str, **values: Any) -> Body:
        row = {"id": str(uuid.uuid4()), **values}
        self.rows[what][row["id"]] = row
        return row

    def network(self, name: str = "n", project_id: str = "p1", cidr: str = "10.0.0.0/24", **values: Any) -> Body:
        given = {"shared": False, "router:external": False, "mtu": 1450, "subnets": [], **values}
        network = self.add("networks", name=name, project_id=project_id, **given)
        network["subnets"] = [self.subnet(network, cidr)["id"]]
        return network

    def subnet(self, network: Body, cidr: str) -> Body:
        gateway = str(ipaddress.ip_network(cidr)[1])
        return self.add("subnets", network_id=network["id"], cidr=cidr, gateway_ip=gateway, dns_nameservers=["9.9.9.9"])

    def port(self, network: Body, project_id: str = "p1", **values: Any) -> Body:
        mac_address = f"fa:16:3e:{uuid.uuid4().bytes[:3].hex(':')}"
        given = {"network_id": network["id"], "project_id": project_id, "mac_address": mac_address, **values}
        return self._create_port(given)

    # --- requests

    def handle(self, method: str, target: str, body: Body, if_match: str | None) -> tuple[int, Body]:
        if self.status:
            return self.status, {}
        split = urlsplit(target)
        _, version, what, *id_ = split.path.split("/")
        assert version == "v2.0", target
        with self._lock:
            if id_ and id_[0] not in self.rows[what]:
                raise Refuse(404, KINDS[what].title() + "NotFound")
            if method == "GET" and not id_:
                return 200, {what.replace("-", "_"): self._list(what, parse_qs(split.query))}
            kind = KINDS[what]
            if method == "GET":
                return 200, {kind: self.rows[what][id_[0]]}
            if method == "POST":
                return 201, {kind: self._create_port(body["port"])}
            if method == "PUT":
                return 200, {kind: self._update_port(id_[0], body["port"], if_match)}
            del self.rows[what][id_[0]]
            return 204, {}

    def _list(self, what: str, query: dict[str, list[str]]) -> list[Body]:
        query.pop("fields", None)
        address = query.pop("fixed_ips", [""])[0].removeprefix("ip_address=")
        found = [
            row
            for row in self.rows[what].values()
            if all(str(row[key]) in [item.replace("true", "True") for item in wanted] for key, wanted in query.items())
        ]
        return [row for row in found if not address or address in [item["ip_address"] for item in row["fixed_ips"]]]

    def _create_port(self, values: Body) -> Body:
        network = self.rows["networks"].get(values["network_id"])
        if network is None:
            raise Refuse(404, "NetworkNotFound")
        others = [port for port in self.ports if port["network_id"] == network["id"]]
        if values["mac_address"] in [port["mac_address"] for port in others]:
            raise Refuse(409, "MacAddressInUse")
        taken = {item["ip_address"] for port in others for item in port["fixed_ips"]}
        subnets = [self.rows["subnets"][id_] for id_ in network["subnets"]]
        wanted = [item["ip_address"] for item in values.get("fixed_ips", [])]
        if "fixed_ips" not in values:
            wanted = [
                next((a for a in map(str, list(ipaddress.ip_network(s["cidr"]))[2:-1]) if a not in taken), "")
                for s in subnets
            ]
        if "" in wanted:
            raise Refuse(409, "IpAddressGenerationFailure")
        fixed = []
        for address in wanted:
            if address in taken:
                raise Refuse(409, "IpAddressAlreadyAllocated")
            ip = ipaddress.ip_address(address)
            mine = [subnet for subnet in subnets if ip in ipaddress.ip_network(subnet["cidr"])]
            if not mine:
                raise Refuse(400, "InvalidIpForNetwork")
            fixed.append({"ip_address": address, "subnet_id": mine[0]["id"]})
        groups = [row["id"] for row in self.rows["security-groups"].values() if row["name"] == "default"]
        given = {"device_id": "", "device_owner": "", "security_groups": groups, "revision_number": 1, "status": "DOWN"}
        return self._bound(self.add("ports", **given | values | {"fixed_ips": fixed}))

    def _update_port(self, id_: str, values: Body, if_match: str | None) -> Body:
        port = self.rows["ports"][id_]
        if if_match is not None and if_match != f"revision_number={port['revision_number']}":
            raise Refuse(412, "RevisionNumberConstraintFailed")
        port.update(values, revision_number=port["revision_number"] + 1)
        return self._bound(port)

    def _bound(self, port: Body) -> Body:
        host = port.setdefault("binding:host_id", "")
        bound = VIF_TYPES.get(port.get("binding:vnic_type", ""), "ovs")
        port["binding:vif_type"] = bound if host in self.hosts else "binding_failed" if host else "unbound"
        port["binding:vif_details"] = {"bridge_name": "br-int", "port_filter": True}
        if bound != "ovs":
            vlan = self.rows["networks"][port["network_id"]].get("provider:segmentation_id")
            port["binding:vif_details"] = {"port_filter": False} | ({} if vlan is None else {"vlan": str(vlan)})
        if self.notify is not None and port["binding:vif_type"] == "ovs" and port["status"] != "ACTIVE":
            threading.Timer(SECONDS, self._connect, (port,)).start()
        return port

    def _connect(self, port: Body) -> None:
        port["status"] = "ACTIVE"
        if self.notify is not None:
            self.notify(port)
