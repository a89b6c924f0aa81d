// Runs commands.py with PYTHON, or else with the checkout's .venv.
import { execFile } from "node:child_process";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const top = path.join(here, "../../..");
const python = process.env.PYTHON ?? path.join(top, ".venv/bin/python");
const env = { ...process.env, PYTHONPATH: top };
const run = (script, input) =>
  new Promise((resolve, reject) => {
    const child = execFile(python, [path.join(here, script)], { cwd: top, env }, (error, found) =>
      error ? reject(error) : resolve(JSON.parse(found)),
    );
    child.stdin.end(input);
  });

export const refusals = (lines) => run("commands.py", JSON.stringify(lines));
export const readKeys = (files) => run("keys.py", JSON.stringify(files));
