// Search, order, filters and parts of tables, their files, and pages of the APIs.
import { afterEach, expect, test, vi } from "vitest";
import { all, pages, reasonOf } from "../src/api";
import { csvOf, fitting, offeredBy, partsWithin, sorted } from "../src/table";
import { begun, chosenWords, type Field, itemAt } from "../src/ui";

afterEach(() => vi.unstubAllGlobals());

test("a search needs all of its words, in any order and case", () => {
  expect(fitting("ACTIVE web")("web-1\nactive\n10.0.0.5")).toBe(true);
  expect(fitting("web error")("web-1\nactive\n10.0.0.5")).toBe(false);
  expect(fitting("  ")("web-1")).toBe(true);
});

test("chosenWords names the rows that the search does not show", () => {
  expect(chosenWords(40, 39)).toBe("40 chosen, 39 not in this search");
  expect(chosenWords(2, 0)).toBe("2 chosen");
});

test.each([
  ["ArrowDown", 2, 0],
  ["ArrowUp", 0, 2],
  ["Home", 2, 0],
  ["End", 0, 2],
  ["d", 0, 2],
  ["s", 0, 1],
  ["s", 1, 0],
  ["x", 0, -1],
  [" ", 0, -1],
  ["Enter", 0, -1],
])("itemAt of %s from %d is %d", (key, at, expected) => {
  expect(itemAt(["Start", "stop", "Delete"], at, key)).toBe(expected);
});

const CHOICES = ["a", "b"].map((value) => ({ value, label: value }));
const loaded: Field = { name: "flavor", label: "Flavor", kind: "select", choices: async () => CHOICES };

test.each([
  ["things of the cloud have no default", loaded, CHOICES, "", ""],
  ["a choice stays", loaded, CHOICES, "b", "b"],
  ["a choice that is no more goes", loaded, CHOICES, "c", ""],
  ["the only one is chosen", loaded, CHOICES.slice(0, 1), "", "a"],
  ["there may be none", loaded, [], "", ""],
  ["words of the page have a default", { ...loaded, choices: CHOICES }, CHOICES, "", "a"],
  ["the usual one comes before none", { ...loaded, first: true }, [...CHOICES, { value: "", label: "none" }], "", "a"],
  ["none stays without a usual one", loaded, [...CHOICES, { value: "", label: "none" }], "", ""],
] as const)("begun: %s", (_, field, found, value, expected) => {
  expect(begun(field as Field, [...found], value)).toBe(expected);
});

interface Row {
  name: string;
  size: number;
}
const ROWS: Row[] = [
  { name: "host10", size: 9 },
  { name: "host9", size: 10 },
  { name: "host1", size: 9 },
];
const COLUMNS = [
  { name: "name", title: "Name", text: (row: Row) => row.name },
  { name: "size", title: "Size", text: (row: Row) => row.size },
];
const names = (sort: string): string[] => sorted(ROWS, COLUMNS, sort).map((row) => row.name);

test("sorted compares numbers in texts, and leaves its rows as they are", () => {
  expect(names("name")).toEqual(["host1", "host9", "host10"]);
  expect(names("-name")).toEqual(["host10", "host9", "host1"]);
  expect(names("size")).toEqual(["host10", "host1", "host9"]);
  expect(names("-size")).toEqual(["host9", "host10", "host1"]);
  expect(names("")).toEqual(["host10", "host9", "host1"]);
  expect(names("unknown")).toEqual(["host10", "host9", "host1"]);
  expect(ROWS[0]!.name).toBe("host10");
});

test.each([
  ["the top", [100, 100, 100, 100], 0, 150, { from: 0, to: 2 }],
  ["the middle", [100, 100, 100, 100], 250, 280, { from: 2, to: 3 }],
  ["parts of other heights", [500, 100, 100, 100], 510, 700, { from: 1, to: 3 }],
  ["what is above", [100, 100], -900, -500, { from: 0, to: 1 }],
  ["what is below", [100, 100], 900, 1500, { from: 1, to: 2 }],
  ["an empty table", [], 0, 900, { from: 0, to: 1 }],
] as const)("partsWithin of %s", (_, sizes, top, bottom, expected) => {
  expect(partsWithin([...sizes], top, bottom)).toEqual(expected);
});

test("offeredBy counts the rows of each value, of which a row may have several", () => {
  const rows = [{ tags: ["b", "a10"] }, { tags: ["a9", "b"] }, { tags: [] }, { tags: [""] }];
  const filter = { name: "tag", title: "Tag", of: (row: { tags: string[] }) => row.tags };
  expect(offeredBy(filter, rows)).toEqual([
    ["a9", 1],
    ["a10", 1],
    ["b", 2],
  ]);
  const many = Array.from({ length: 150 }, (_, number) => ({ tags: number > 120 ? ["often"] : [`t${number}`] }));
  const offered = offeredBy(filter, many);
  expect(offered).toHaveLength(100);
  expect(offered).toContainEqual(["often", 29]);
});

test("csvOf quotes what ends a field, and disarms what a spreadsheet would calculate", () => {
  const rows = [
    { name: 'a "b", c', size: -1 },
    { name: "=1+1", size: 2 },
    { name: "line\nnext", size: 3 },
  ];
  expect(csvOf(COLUMNS, rows)).toBe('Name,Size\r\n"a ""b"", c",-1\r\n\'=1+1,2\r\n"line\nnext",3\r\n');
});

/** Answer requests of lists from so many rows, as the APIs do, and return the requests. */
function serve(count: number): string[] {
  const asked: string[] = [];
  vi.stubGlobal("fetch", async (url: string) => {
    asked.push(url);
    const query = new URL(url, "http://page/").searchParams;
    const after = query.get("marker") === null ? 0 : Number(query.get("marker")) + 1;
    const rows = Array.from({ length: count }, (_, id) => ({ id: String(id) }));
    return new Response(JSON.stringify({ images: rows.slice(after, after + Number(query.get("limit"))) }));
  });
  return asked;
}

test("pages begins with a small page, and ends with one that is not full", async () => {
  const asked = serve(1150);
  const sizes: number[] = [];
  for await (const page of pages("image", "/images?status=active", "images", 100)) sizes.push(page.length);
  expect(sizes).toEqual([100, 1000, 50]);
  expect(asked[0]).toBe("api/image/v2/images?status=active&limit=100");
  expect(asked[1]).toBe("api/image/v2/images?status=active&limit=1000&marker=99");
});

test("all asks once more after a page that is full", async () => {
  const asked = serve(1000);
  expect(await all("image", "/images", "images")).toHaveLength(1000);
  expect(asked).toHaveLength(2);
});

test.each([
  ['{"itemNotFound": {"code": 404, "message": "Gone."}}', "Gone."],
  ['{"NeutronError": {"type": "X", "message": "In use.", "detail": ""}}', "In use."],
  ['{"errors": [{"status": 409, "detail": "Taken."}]}', "Taken."],
  ["Plain words", "Plain words"],
  ["<html>proxy</html>", "The API answers 502 and gives no reason."],
  ["", "The API answers 502 and gives no reason."],
])("reasonOf %s is the API's own words", (text, reason) => {
  expect(reasonOf(text, 502)).toBe(reason);
});
