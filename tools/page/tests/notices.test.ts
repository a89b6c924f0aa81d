// Notices of what a user has begun.
import { expect, test, vi } from "vitest";
import { drop, notices, notify, watchNotices } from "../src/noticeboard";
import { serverActions } from "../src/servers";

test("a notice stays until it is dropped, and each change is told", () => {
  const changed = vi.fn();
  const stop = watchNotices(changed);
  const first = { words: "Renamed: web-1" };
  notify(first);
  notify({ words: "Locked: web-1" });
  drop(first);
  drop(first);
  expect(notices.map((notice) => notice.words)).toEqual(["Locked: web-1"]);
  expect(changed).toHaveBeenCalledTimes(4);
  stop();
  drop(notices[0]!);
  expect(notices).toEqual([]);
  expect(changed).toHaveBeenCalledTimes(4);
});

test("actions that can be undone say what they have done", () => {
  const found = serverActions().filter((action) => action.undo);
  expect(found.map((action) => [action.name, action.done])).toEqual([
    ["os-stop", "Stopping"],
    ["rename", "Renamed"],
    ["lock", "Locked"],
  ]);
});
