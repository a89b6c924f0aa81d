// Builds the files that browsers load into nova_lite/api/page/static, or into the directory that is given.
import * as esbuild from "esbuild";
import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? path.join(here, "../../nova_lite/api/page/static");
fs.mkdirSync(target, { recursive: true });
await esbuild.build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  outdir: target,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome110", "firefox115", "safari16"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
});
const preact = path.join(here, "node_modules/preact");
const version = JSON.parse(fs.readFileSync(path.join(preact, "package.json"), "utf8")).version;
const licence = fs.readFileSync(path.join(preact, "LICENSE"), "utf8");
fs.writeFileSync(path.join(target, "licenses.txt"), `app.js contains Preact ${version}:\n\n${licence}`);
for (const name of ["index.html", "icon.svg"]) fs.copyFileSync(path.join(here, "src", name), path.join(target, name));

// The digest by which a test without Node.js sees that these files are older than their sources.
const sources = [...fs.readdirSync(path.join(here, "src")).map((name) => `src/${name}`), "build.mjs", "package-lock.json", "tsconfig.json"].sort();
const digest = crypto.createHash("sha256");
for (const name of sources) digest.update(`${name}\n`).update(fs.readFileSync(path.join(here, name)));
fs.writeFileSync(path.join(target, "sources.sha256"), `${digest.digest("hex")}\n`);
