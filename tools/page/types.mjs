// Writes the types of the compute API's requests into generated/, by the OpenAPI document of this checkout, which
// PYTHON prints, or else the checkout's .venv. The document names no fields of replies, so they are left out.
import { execFileSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import openapiTS, { astToString } from "openapi-typescript";

const here = path.dirname(fileURLToPath(import.meta.url));
const top = path.join(here, "../..");
const python = process.env.PYTHON ?? path.join(top, ".venv/bin/python");
const printed = execFileSync(python, ["-m", "nova_lite.cmd.manage", "api", "openapi"], {
  cwd: top,
  encoding: "utf8",
  maxBuffer: 64 * 1048576,
  stdio: ["ignore", "pipe", "inherit"],
});
const document = JSON.parse(printed);
for (const methods of Object.values(document.paths))
  for (const operation of Object.values(methods)) {
    delete operation["x-openstack"];
    operation.responses = { default: { description: "" } };
  }
fs.mkdirSync(path.join(here, "generated"), { recursive: true });
fs.writeFileSync(path.join(here, "generated/compute.d.ts"), astToString(await openapiTS(document)));
