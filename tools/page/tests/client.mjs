// Runs commands.py with PYTHON, or else with the checkout's .venv.
import { execFileSync } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

export function refusals(lines) {
  const here = path.dirname(fileURLToPath(import.meta.url));
  const top = path.join(here, "../../..");
  const python = process.env.PYTHON ?? path.join(top, ".venv/bin/python");
  const env = { ...process.env, PYTHONPATH: top };
  const input = JSON.stringify(lines);
  return JSON.parse(execFileSync(python, [path.join(here, "commands.py")], { cwd: top, env, input, encoding: "utf8" }));
}
