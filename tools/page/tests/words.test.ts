// Sizes, times, commands and sentences.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { madeBy, unmarked } from "../src/called";
import { WORDS } from "../src/chinese";
import { socketOf } from "../src/consoles";
import { addressOf, sentence } from "../src/kinds";
import { counted, setLanguage, use } from "../src/messages";
import { link } from "../src/state";
import { ago, command, duration, type Field, parseTime, quote, size, type Values, withMarks, words } from "../src/ui";

beforeEach(() => {
  vi.useFakeTimers({ now: new Date("2030-01-02T03:04:05Z") });
  vi.stubGlobal("document", { documentElement: { lang: "en" } });
});
afterEach(() => {
  use("en", {});
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

test.each([
  [0, "0 MB"],
  [1023, "1023 MB"],
  [1024, "1 GB"],
  [1536, "1.5 GB"],
  [20480, "20 GB"],
  [1048576, "1 TB"],
  [15728640, "15 TB"],
])("size of %d megabytes is %s", (megabytes, text) => {
  expect(size(megabytes)).toBe(text);
});

test.each(["2030-01-02T03:04:05Z", "2030-01-02T03:04:05", "2030-01-02T03:04:05.000000", "2030-01-02T05:04:05+02:00"])(
  "parseTime of %s without a zone is UTC",
  (text) => {
    expect(parseTime(text).toISOString()).toBe("2030-01-02T03:04:05.000Z");
  },
);

test.each([
  ["2030-01-02T03:04:00", "just now"],
  ["2030-01-02T03:05:00", "just now"], // the clock of the cloud is ahead
  ["2030-01-02T03:02:00", "2 minutes ago"],
  ["2030-01-02T01:00:00", "2 hours ago"],
  ["2030-01-01T03:04:05", "yesterday"],
  [null, ""],
])("ago of %s is %s", (text, expected) => {
  expect(ago(text)).toBe(expected);
});

test.each([
  ["2030-01-01T00:00:00.000", "2030-01-01T00:00:00.250", "250 ms"],
  ["2030-01-01T00:00:00", "2030-01-01T00:00:42", "42.0 s"],
  ["2030-01-01T00:00:00", "2030-01-01T00:02:05", "2 min 5 s"],
  ["2030-01-01T00:00:01", "2030-01-01T00:00:00", "0 ms"],
])("duration from %s to %s is %s", (from, to, text) => {
  expect(duration(from, to)).toBe(text);
});

test("words are translated, and those without a translation stay", async () => {
  expect(words("SHELVED_OFFLOADED")).toBe("Shelved offloaded");
  expect(words("confirmResize")).toBe("Confirm resize");
  await setLanguage("zh", false);
  expect(document.documentElement.lang).toBe("zh");
  expect(words("ACTIVE")).not.toBe("Active");
  expect(words("xyzzy")).toBe("Xyzzy");
});

test.each([
  ["en", {}, ["0 guests", "1 guest", "2 guests", "1,000 guests"]],
  ["zh", WORDS, ["0 台虚拟机", "1 台虚拟机", "2 台虚拟机", "1,000 台虚拟机"]],
  // A language with four forms.
  [
    "pl",
    { "{n} guests": { one: "{n} gość", few: "{n} goście", many: "{n} gości" } },
    ["0 gości", "1 gość", "2 goście", "1000 gości"],
  ],
  ["pl", { "{n} guests": {} }, ["0 guests"]],
] as const)("counted in %s has the plurals of the language", (code, words, texts) => {
  use(code, words);
  const found = [0, 1, 2, 1000].map((count) => counted(count, "{n} guest", "{n} guests"));
  expect(found.slice(0, texts.length)).toEqual(texts);
});

test("quote protects what a shell would read", () => {
  expect(quote("web-1.example/a:b=c")).toBe("web-1.example/a:b=c");
  expect(quote("two words")).toBe("'two words'");
  expect(quote("it's $HOME; rm")).toBe("'it'\\''s $HOME; rm'");
  expect(quote("")).toBe("''");
});

test("command leaves out what is not set, and keeps 0", () => {
  const text = command("openstack x", 0, ["--size", 0], false, null, undefined, "", "a b");
  expect(text).toBe("openstack x 0 --size 0 'a b'");
});

test("link encodes each part of a place", () => {
  expect(link("keys", "a/b c?d#é")).toBe("#/keys/a%2Fb%20c%3Fd%23%C3%A9");
});

test("socketOf takes the path of a screen from its page", () => {
  expect(socketOf("wss://host:6083/?token=a")).toBe("wss://host:6083/?token=a");
  expect(socketOf("https://host:6080/vnc_lite.html?path=%3Ftoken%3Da")).toBe("wss://host:6080/?token=a");
  expect(socketOf("http://host:6080/vnc_lite.html?path=/websockify")).toBe("ws://host:6080/websockify");
});

const RULE = {
  id: "1",
  description: null,
  direction: "ingress",
  ethertype: "IPv4",
  protocol: "tcp",
  port_range_min: 22,
  port_range_max: 22,
  remote_ip_prefix: "0.0.0.0/0",
  remote_group_id: null,
} as const;

test.each([
  [{}, "Lets in SSH (TCP 22) from everywhere"],
  [{ port_range_min: 8000, port_range_max: 8010 }, "Lets in TCP ports 8000–8010 from everywhere"],
  [{ port_range_min: 9, port_range_max: 9, remote_ip_prefix: "10.0.0.0/8" }, "Lets in TCP port 9 from 10.0.0.0/8"],
  [{ port_range_min: 1, port_range_max: 65535 }, "Lets in all TCP from everywhere"],
  [{ protocol: null, port_range_min: null, port_range_max: null }, "Lets in everything from everywhere"],
  [{ protocol: "icmp", port_range_min: null, port_range_max: null }, "Lets in ping and other ICMP from everywhere"],
  [{ remote_group_id: "g", remote_ip_prefix: null }, "Lets in SSH (TCP 22) from servers of the group web"],
  [{ direction: "egress", ethertype: "IPv6", remote_ip_prefix: "::/0" }, "Lets out SSH (TCP 22) to everywhere (IPv6)"],
] as const)("sentence of a rule with %o", (change, text) => {
  expect(sentence({ ...RULE, ...change }, new Map([["g", "web"]]))).toBe(text);
});

test.each([
  ["web ports [nova-lite-apply:shop/web]", "web ports", "shop/web"],
  ["[nova-lite-apply:shop/web 1#0123456789ab]", "", "shop/web 1"],
  ["[nova-lite-apply:shop/web] more", "[nova-lite-apply:shop/web] more", undefined],
  ["plain", "plain", undefined],
  ["", "", undefined],
])("text %o is %o without its mark, of %s", (text, words, file) => {
  expect([unmarked(text), madeBy(text)]).toEqual([words, file]);
});

test.each([
  ["", "https://cloud.example/images/13/disk.qcow2"],
  ["http://mirror.example/debian//", "http://mirror.example/debian/13/disk.qcow2"],
])("cloud image with the mirror %o is at %s", (mirror, address) => {
  const row = { name: "debian/13", architecture: "x86_64", image: "debian-13", disk_format: "qcow2" };
  const whole = {
    ...row,
    properties: {},
    is_allowed: true,
    site: "https://cloud.example/images",
    path: "13/disk.qcow2",
  };
  expect(addressOf(whole, mirror)).toBe(address);
});

test("a dialog's text keeps the mark that the user has not seen", () => {
  const fields = [
    { name: "name", label: "Name", initial: "disk" },
    { name: "description", label: "Description", initial: "old [nova-lite-apply:shop/disk]" },
  ] as Field[];
  const values = { name: "disk-2", description: "new" } as Values;
  expect(withMarks(fields, values)).toEqual({ name: "disk-2", description: "new [nova-lite-apply:shop/disk]" });
  expect(withMarks(fields, { ...values, description: "" }).description).toBe("[nova-lite-apply:shop/disk]");
});
