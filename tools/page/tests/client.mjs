// Runs commands.py with PYTHON, or else with the checkout's .venv.
import { execFileSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const top = path.join(here, "../../..");
const python = process.env.PYTHON ?? path.join(top, ".venv/bin/python");
const env = { ...process.env, PYTHONPATH: top };
const run = (script, input) =>
  JSON.parse(execFileSync(python, [path.join(here, script)], { cwd: top, env, input, encoding: "utf8" }));

export const refusals = (lines) => run("commands.py", JSON.stringify(lines));
export const readKeys = (files) => run("keys.py", JSON.stringify(files));
