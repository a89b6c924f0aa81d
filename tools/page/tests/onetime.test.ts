// One-time codes of the browser: the values of RFC 6238, and the drawing that an app reads.
import { expect, test, vi } from "vitest";
import "./crypto.mjs";
import { appAddress, codeAt, isRight, makeSecret } from "../src/onetime";
import { drawing } from "../src/secondfactor";

/** The key of RFC 6238, appendix B: "12345678901234567890". */
const SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

test.each([
  [59, "287082"],
  [1111111109, "081804"],
  [1234567890, "005924"],
  [20000000000, "353130"],
])("codeAt %d seconds is that of RFC 6238", async (seconds, code) => {
  expect(await codeAt(SECRET, seconds)).toBe(code);
});

test.each([
  ["287082", 59, true],
  ["287 082", 89, true],
  ["287082", 29, true],
  ["287082", 120, false],
  ["287083", 59, false],
  ["", 59, false],
])("isRight of %s at %d seconds is %s", async (code, seconds, expected) => {
  expect(await isRight(SECRET, code, seconds)).toBe(expected);
});

test("makeSecret makes 20 bytes in base32, others each time", () => {
  const made = Array.from({ length: 50 }, makeSecret);
  expect(made.every((secret) => /^[A-Z2-7]{32}$/.test(secret))).toBe(true);
  expect(new Set(made).size).toBe(50);
  vi.stubGlobal("crypto", { getRandomValues: () => new TextEncoder().encode("12345678901234567890") });
  expect(makeSecret()).toBe(SECRET);
  vi.unstubAllGlobals();
});

test("appAddress keeps names with special letters apart from its own", () => {
  const address = new URL(appAddress(SECRET, "al:ice&x@é", "cloud.example"));
  expect(decodeURIComponent(address.pathname)).toBe("/cloud.example:al:ice&x@é");
  expect(Object.fromEntries(address.searchParams)).toEqual({ secret: SECRET, issuer: "cloud.example" });
});

test("drawing has the three corners of a QR code inside of an empty border", () => {
  const { path, size } = drawing(appAddress(SECRET, "alice", "cloud.example"));
  expect((size - 8 - 17) % 4).toBe(0);
  const dark = new Set(path.match(/M\d+ \d+/g));
  const side = (x: number, y: number) => Array.from({ length: 7 }, (_, at) => dark.has(`M${x + at} ${y}`));
  const isCorner = (x: number, y: number) => [...side(x, y), ...side(x, y + 6)].every(Boolean);
  const far = size - 4 - 7;
  expect([isCorner(4, 4), isCorner(far, 4), isCorner(4, far), isCorner(far, far)]).toEqual([true, true, true, false]);
  const places = [...dark].flatMap((place) => place.slice(1).split(" ").map(Number));
  expect([Math.min(...places), Math.max(...places)]).toEqual([4, size - 5]);
});
