"""The web page in a browser: what a user sees, presses and writes there."""

from __future__ import annotations

import json
from typing import Any

from tests.support.browser import Browser

#: Functions in the page that find what a user sees. A dialog hides what is below it.
_HELPERS = """
window.seen = () => [...document.querySelectorAll('dialog[open]')].at(-1) ?? document.body
  ?? document.createElement('body');
window.shown = (element) => element.getClientRects().length > 0;
window.wordsOf = (element) => (element.getAttribute('aria-label') ?? element.textContent).replace(/[ ▾]+$/, '').trim();
window.pressable = (text) => [...seen().querySelectorAll('button, a, summary, [role=menuitem]')].filter(shown)
  .find((element) => wordsOf(element) === text);
window.control = (label) => {
  const found = [...seen().querySelectorAll('label')].filter(shown)
    .find((element) => element.firstChild.textContent.trim() === label || element.textContent.trim() === label);
  if (found) return found.htmlFor ? document.getElementById(found.htmlFor) : found.querySelector('input, select');
  return [...seen().querySelectorAll('[aria-label]')].filter(shown).find((element) => element.ariaLabel === label);
};
window.takes = (label, value) => {
  const element = control(label);
  if (element?.tagName !== 'SELECT') return !!element;
  return [...element.options].some((item) => item.text.startsWith(value));
};
window.write = (label, value) => {
  const element = control(label);
  const kind = {SELECT: HTMLSelectElement, TEXTAREA: HTMLTextAreaElement}[element.tagName] ?? HTMLInputElement;
  if (element.tagName === 'SELECT') {
    value = [...element.options].find((item) => item.text.startsWith(value)).value;
  }
  Object.getOwnPropertyDescriptor(kind.prototype, 'value').set.call(element, value);
  element.dispatchEvent(new Event('input', {bubbles: true}));
  element.dispatchEvent(new Event('change', {bubbles: true}));
};
"""

#: Makes views that open later receive 20 networks with 10 servers each, on a router to the outside.
_MANY_NETWORKS = """{
  const named = (prefix, count) =>
    Array.from({length: count}, (_, at) => ({id: `${prefix}${at}`, name: `${prefix}${at}`}));
  const own = {project_id: 'p', status: 'ACTIVE', admin_state_up: true, shared: false, subnets: [], description: ''};
  const outside = {id: 'out', name: 'out', ...own, 'router:external': true};
  const inside = named('network-', 20).map((row) => ({...row, ...own, 'router:external': false}));
  const servers = inside.flatMap(({id}) => named(`server-of-${id}-`, 10));
  const ports = [
    ...inside.map(({id}) => (
      {id: `r${id}`, network_id: id, device_id: 'router', device_owner: 'network:router_interface'})),
    ...servers.map(({id}) => (
      {id: `p${id}`, network_id: id.slice(10, id.lastIndexOf('-')), device_id: id, device_owner: 'compute:nova'})),
  ];
  const bodies = {
    networks: [outside, ...inside], ports, servers, subnets: [],
    routers: [{id: 'router', name: 'way-out', ...own, external_gateway_info: {network_id: 'out'}}],
  };
  const asked = window.fetch;
  window.fetch = async (url, init) => {
    const kind = /\\/(networks|routers|ports|servers|subnets)(\\?|$)/.exec(url)?.[1];
    if (!kind || (init?.method ?? 'GET') !== 'GET') return asked(url, init);
    const rows = bodies[kind].map((row) => ({fixed_ips: [], security_groups: [], status: 'ACTIVE', ...row}));
    return new Response(JSON.stringify({[kind]: rows}));
  };
}; true"""


class Page:
    """A page at ``url``, of the cloud of ``nova-lite dev``."""

    def __init__(self, browser: Browser, url: str) -> None:
        self.browser = browser
        self.url = url
        self.user = ""
        browser.preload(_HELPERS)

    def open(self, place: str = "", project: str = "") -> None:
        """Load the page at a place, such as ``servers/new``. ``project``: id of the one in the address."""
        self.browser.open("about:blank", "true")
        self.browser.open(
            f"{self.url}{project and f'?project={project}'}#/{place}",
            "!!document.querySelector('.shell, .login, .failure')",
        )

    def go(self, place: str) -> None:
        """Follow a link to a place, and wait until it has its content."""
        self.browser.run(f"location.hash = {json.dumps('#/' + place)}; true")
        self.settle()

    def settle(self) -> None:
        self.browser.wait("!!document.querySelector('main h1, .login') && !document.querySelector('main .waiting')")

    def leave_servers(self) -> None:
        """Open a view that asks for no server. Views of servers may ask for a server after the test has deleted it."""
        self.open("images")
        self.settle()

    def open_drawing(self) -> None:
        """Show the drawing of 20 networks with 10 servers each, by a page that has loaded nothing before."""
        self.open("quotas")
        self.settle()
        self.browser.run(_MANY_NETWORKS)
        self.go("networks")
        self.browser.wait("!!document.querySelector('.topology output') && !!pressable('network-19')")

    def log_in(self, user: str, password: str) -> None:
        """Log in, unless the session is this user's already."""
        if self.user != user:
            self.open()
            who = {"user": {"name": user, "domain": {"id": "default"}, "password": password}}
            body = json.dumps({"auth": {"identity": {"methods": ["password"], "password": who}}})
            init = f"{{method: 'POST', headers: {{'X-Nova-Lite-Page': '1'}}, body: {json.dumps(body)}}}"
            assert self.browser.run(f"fetch('session', {init}).then((response) => response.status)") == 201
            self.user = user
            self.open()
        self.settle()
        self.complaints()

    def headers(self) -> dict[str, str]:
        """Return the headers of the page's requests in the browser's session."""
        mark = {"X-Nova-Lite-Page": "1"}
        body = self.browser.run(f"fetch('session', {{headers: {json.dumps(mark)}}}).then((reply) => reply.json())")
        return {**mark, "X-Nova-Lite-Session": f"{body['token']['user']['id']}/{body['token']['project']['id']}"}

    def enter(self, user: str, password: str) -> None:
        self.write("User", user)
        self.write("Password", password)
        self.press("Log in")

    def press(self, text: str) -> None:
        """Press a button, link or item of a menu, once it is there."""
        self.browser.wait(f"!!pressable({json.dumps(text)})")
        self.browser.run(f"pressable({json.dumps(text)}).click(); true")

    def submit(self) -> None:
        """Press the button that sends the form in sight."""
        self.browser.run("[...seen().querySelectorAll('button')].find((item) => item.type === 'submit').click(); true")

    def write(self, label: str, value: str) -> None:
        """Write into a field, or choose what begins with ``value``."""
        self.browser.wait(f"takes({json.dumps(label)}, {json.dumps(value)})")
        self.browser.run(f"write({json.dumps(label)}, {json.dumps(value)}); true")

    def sees(self, text: str, seconds: float = 30.0) -> None:
        """Wait until the user sees a text."""
        self.browser.wait(f"seen().innerText.includes({json.dumps(text)})", seconds)

    def text(self) -> str:
        return str(self.browser.run("seen().innerText"))

    def offers(self, text: str) -> bool:
        return bool(self.browser.run(f"!!pressable({json.dumps(text)})"))

    def places(self) -> list[str]:
        """Return the places that the menu leads to."""
        return list(
            self.browser.run("[...document.querySelectorAll('.side a')].map((a) => a.getAttribute('href').slice(2))")
        )

    def complaints(self) -> list[Any]:
        """Return what went wrong since the last call: exceptions, refused content, and responses of 400 and above."""
        self.browser.run("new Promise((done) => setTimeout(done, 50))")
        return self.browser.complaints()
