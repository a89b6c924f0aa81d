// A key that the browser makes: its files are those of OpenSSH, and its name is free.
import { afterEach, expect, test, vi } from "vitest";
import "./crypto.mjs";
import { freeName, keyFile, makeKey, makesKeys } from "../src/newkey";
import { readKeys } from "./client.mjs";

afterEach(() => vi.unstubAllGlobals());

test("makeKey makes another key each time, whose file another program reads", async () => {
  const made = await makeKey("alice");
  expect(made.public).toMatch(/^ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI\S+ alice$/);
  expect((await readKeys([made.private])).map((line) => `${line} alice`)).toEqual([made.public]);
  expect((await makeKey("alice")).public).not.toBe(made.public);
}, 60000);

test("keyFile has the halves of the first key of RFC 8032, in lines of 70 letters", async () => {
  const halves = [
    "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
  ].map((text) => Uint8Array.from(text.match(/../g)!, (byte) => Number.parseInt(byte, 16)));
  const comments = ["", "a", "seven77", "eight888", "é"];
  const made = comments.map((comment) => keyFile(halves[0]!, halves[1]!, comment, 4294967295));
  const [first] = new Set(await readKeys(made.map((file) => file.private)));
  expect(made.map((file) => file.public)).toEqual(comments.map((comment) => `${first} ${comment}`));
  for (const file of made) {
    const lines = file.private.trimEnd().split("\n");
    expect(lines.slice(1, -2).every((line) => line.length === 70)).toBe(true);
    expect(lines.at(-2)!.length).toBeLessThanOrEqual(70);
  }
}, 60000);

test("a browser without Ed25519, or a page without TLS, makes no keys", async () => {
  expect(await makesKeys()).toBe(true);
  vi.stubGlobal("crypto", { subtle: { generateKey: () => Promise.reject(new Error("NotSupportedError")) } });
  expect(await makesKeys()).toBe(false);
  vi.stubGlobal("crypto", {});
  expect(await makesKeys()).toBe(false);
});

test.each([
  ["alice", [], "alice"],
  ["alice", ["alice", "alice-2"], "alice-3"],
  ["Ann O'Hara@x", [], "Ann-O-Hara-x"],
])("freeName of %s beside %o is %s", (wanted, taken, name) => {
  expect(freeName(wanted, taken)).toBe(name);
});
