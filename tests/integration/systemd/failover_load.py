"""Load of a cloud through its virtual address: reads, creates and deletes, each on a new connection.

    failover_load.py ADDRESS PASSWORD FLAVOR IMAGE STOP RESULT PATIENCE

A client waits PATIENCE seconds for a response. The load ends when the file STOP exists. RESULT then has one JSON list a
line: kind, start, end, failure (empty for none). The last line is an object with the servers whose creates, and whose
deletes, were accepted, and all servers for which a delete was sent: without a response, it may have been accepted as
well.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import requests

AUTHORITY = "/root/ca.pem"
READERS, WRITERS = 3, 2
#: Servers that a writer has at a time.
KEPT = 4


class Load:
    def __init__(
        self, address: str, password: str, flavor: str = "", image: str = "", stop: str = "/", patience: float = 60.0
    ) -> None:
        self._base, self._stop, self._patience = f"https://{address}", stop, patience
        self._flavor, self._image = flavor, image
        self._lock = threading.Lock()
        self.requests: list[tuple[str, float, float, str]] = []
        self.created: list[str] = []
        self.deleted: list[str] = []
        self.tried: list[str] = []
        self._headers = {"X-OpenStack-Nova-API-Version": "2.37", "X-Auth-Token": self._login(password)}

    def _login(self, password: str) -> str:
        user = {"name": "admin", "domain": {"id": "default"}, "password": password}
        auth = {"identity": {"methods": ["password"], "password": {"user": user}}}
        auth["scope"] = {"project": {"name": "admin", "domain": {"id": "default"}}}  # type: ignore[dict-item]
        url = f"{self._base}:5000/v3/auth/tokens"
        answer = requests.post(url, json={"auth": auth}, verify=AUTHORITY, timeout=60)
        answer.raise_for_status()
        return answer.headers["X-Subject-Token"]

    def run(self) -> None:
        threads = [threading.Thread(target=self._read) for _ in range(READERS)]
        threads += [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _goes_on(self) -> bool:
        return not os.path.exists(self._stop)

    def _read(self) -> None:
        while self._goes_on():
            self._request("get", "GET", "/servers?limit=10", None, 200)
            time.sleep(0.2)

    def _write(self, number: int) -> None:
        mine: list[str] = []
        count = 0
        while self._goes_on():
            count += 1
            server = {"name": f"load-{number}-{count}", "flavorRef": self._flavor, "imageRef": self._image}
            server["networks"] = "none"
            found = self._request("change", "POST", "/servers", {"server": server}, 202)
            if found is not None:
                mine.append(found["server"]["id"])
                with self._lock:
                    self.created.append(mine[-1])
            if len(mine) > KEPT:
                gone = mine[0]
                with self._lock:
                    self.tried.append(gone)
                if self._request("change", "DELETE", f"/servers/{gone}", None, 204) is not None:
                    mine.pop(0)
                    with self._lock:
                        self.deleted.append(gone)
            time.sleep(0.3)

    def _request(self, kind: str, method: str, path: str, body: Any, expected: int) -> Any:
        """Send a request once. Return the decoded body of the expected response, else None."""
        began, result, failure = time.time(), None, ""
        try:
            answer = requests.request(
                method,
                f"{self._base}:8774/v2.1{path}",
                json=body,
                headers=self._headers,
                verify=AUTHORITY,
                timeout=self._patience,
            )
            if answer.status_code == expected:
                result = answer.json() if answer.content else {}
            elif method == "DELETE" and answer.status_code == 404:
                result = {}  # An earlier request, whose response was lost, has deleted it.
            else:
                failure = f"{answer.status_code} {answer.text[:200]}"
        except requests.RequestException as error:
            failure = f"{type(error).__name__} {error}"[:200]
        with self._lock:
            self.requests.append((kind, began, time.time(), failure))
        return result


def main() -> None:
    address, password, flavor, image, stop, result, patience = sys.argv[1:]
    load = Load(address, password, flavor, image, stop, float(patience))
    print("serves", flush=True)
    load.run()
    with open(result, "w", encoding="utf-8") as file:
        for entry in load.requests:
            print(json.dumps(entry), file=file)
        print(json.dumps({"created": load.created, "deleted": load.deleted, "tried": load.tried}), file=file)


if __name__ == "__main__":
    main()
