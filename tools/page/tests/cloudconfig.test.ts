// What the form says of a cloud-init file before it is sent.
import { expect, test } from "vitest";
import { mistakes } from "../src/cloudconfig";

const said = (...lines: string[]) => mistakes(["#cloud-config", ...lines].join("\n")).map((m) => `${m.line} ${m.text}`);

test("a file without a mistake has none, whatever form its values have", () => {
  const lines = [
    "# a comment",
    "hostname: web # its name",
    '"timezone": Europe/Berlin',
    "package_update: true",
    "packages: [nginx,",
    "  curl]",
    "runcmd:",
    "- [ls, -l]",
    "- |",
    "  a: text",
    "   with its own form",
    "",
    "write_files:",
    "  # another one",
    "  - path: /etc/motd",
    "    content: |",
    "      hello",
    "  - path: /etc/issue",
    "users:",
    "  - default",
    "ssh_pwauth: no",
    "chpasswd: {expire: false}",
    "final_message: |",
    "    far",
    "  near",
    "bootcmd:",
    "apt: &anchor",
    "  preserve_sources_list: true",
  ];
  expect(said(...lines)).toEqual([]);
});

test.each([
  [["pakages:", "- a"], "2 cloud-init has no key pakages; did you mean packages?"],
  [["colour: red"], "2 cloud-init has no key colour."],
  [["hostname:web"], "2 This is no KEY: VALUE. A space has to follow the colon."],
  [["hostname: a", "", "hostname: b"], "4 hostname is there already, in line 2"],
  [["packages: nginx"], "2 packages has to be a list, with a line of “- ” for each item."],
  [["packages:", "  nginx: yes"], "2 packages has to be a list, with a line of “- ” for each item."],
  [["hostname:", "- web"], "2 hostname has to be one value."],
  [["apt:", "- a"], "2 apt has to have keys of its own below it."],
  [["apt: yes"], "2 apt has to have keys of its own below it."],
  [["runcmd:", "\t- ls"], "3 YAML does not allow tabs at the start of a line."],
  [["runcmd:", "   - ls", "  - id"], "4 This line begins further left than those above it."],
  [["- ls"], "2 A key has to come first."],
])("of %o it says: %s", (lines, text) => {
  expect(said(...lines)).toEqual([text]);
});

test("other user data are not read as YAML", () => {
  for (const data of ["#!/bin/sh\n\techo", "#cloud-config-archive\nx", '#cloud-config\n{"a": 1}', "", "hostname:web"])
    expect(mistakes(data)).toEqual([]);
});
