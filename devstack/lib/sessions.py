"""Access to a cloud for the devstack scripts: by password, at an identity API of version 3."""

from __future__ import annotations

from typing import Any

import requests

TIMEOUT = 60


class Session:
    """A project's token and its catalog."""

    def __init__(self, url: str, account: dict[str, Any]) -> None:
        domain = {"id": "default"}
        user = {"name": account["username"], "password": account["password"], "domain": domain}
        body = {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": account["project_name"], "domain": domain}},
        }
        answer = requests.post(f"{url}/auth/tokens", json={"auth": body}, timeout=TIMEOUT)
        answer.raise_for_status()
        self.token: str = answer.headers["X-Subject-Token"]
        endpoints = {
            service["type"]: endpoint
            for service in answer.json()["token"]["catalog"]
            for endpoint in service["endpoints"]
            if endpoint["interface"] == "public"
        }
        self.region: str = endpoints["compute"]["region"]
        self.compute: str = endpoints["compute"]["url"].rstrip("/")
        self.image: str = endpoints["image"]["url"].rstrip("/") + "/v2"
        self.volume: str = endpoints["volumev3"]["url"].rstrip("/") if "volumev3" in endpoints else ""
        self.network: str = endpoints["network"]["url"].rstrip("/") + "/v2.0" if "network" in endpoints else ""

    def request(self, method: str, url: str, **arguments: Any) -> requests.Response:
        headers = {"X-Auth-Token": self.token} | arguments.pop("headers", {})
        answer = requests.request(method, url, headers=headers, timeout=TIMEOUT, **arguments)
        answer.raise_for_status()
        return answer

    def get(self, url: str) -> Any:
        return self.request("GET", url).json()
