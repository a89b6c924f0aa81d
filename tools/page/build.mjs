// Builds the files that browsers load into nova_lite/api/page/static, or into the directory that is given.

import crypto from "node:crypto";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = process.argv[2] ?? path.join(here, "../../nova_lite/api/page/static");
fs.mkdirSync(target, { recursive: true });
for (const name of fs.readdirSync(target)) if (/-[A-Z0-9]{8}\.js$/.test(name)) fs.rmSync(path.join(target, name));
const options = {
  absWorkingDir: here,
  outdir: target,
  bundle: true,
  minify: true,
  target: ["chrome110", "firefox115", "safari16"],
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
};
const { metafile } = await esbuild.build({
  ...options,
  entryPoints: { app: "src/main.tsx", style: "src/style.css" },
  format: "esm",
  splitting: true,
  loader: { ".woff2": "file", ".svg": "dataurl" },
  assetNames: "[name]-[hash]", // browsers keep a file of this name for good
  metafile: true,
});
const font = Object.keys(metafile.outputs)
  .map((name) => path.basename(name))
  .find((name) => name.endsWith(".woff2"));
for (const name of fs.readdirSync(target))
  if (name.endsWith(".woff2") && name !== font) fs.rmSync(path.join(target, name));
// What a console needs, and each language, is loaded when the first user wants it.
await esbuild.build({
  ...options,
  entryPoints: {
    screen: "src/screen.ts",
    terminal: "src/terminal.ts",
    chinese: "src/chinese.ts",
    "terminal.css": "node_modules/@xterm/xterm/css/xterm.css",
  },
  entryNames: "[name]",
  format: "esm",
});
fs.renameSync(path.join(target, "terminal.css.css"), path.join(target, "terminal.css"));
const licenses = [
  ["preact", "LICENSE", "app.js and its parts"],
  ["lucide", "LICENSE", "app.js and its parts"],
  ["uqr", "LICENSE", "the part for the second factor"],
  ["@fontsource-variable/geist", "LICENSE", font],
  ["@novnc/novnc", "LICENSE.txt", "screen.js"],
  ["@novnc/novnc", "docs/LICENSE.MPL-2.0", "screen.js"],
  ["@xterm/xterm", "LICENSE", "terminal.js and terminal.css"],
  ["@xterm/addon-fit", "LICENSE", "terminal.js"],
];
const text = licenses.map(([name, file, where]) => {
  const folder = path.join(here, "node_modules", name);
  const { version, homepage, repository } = JSON.parse(fs.readFileSync(path.join(folder, "package.json"), "utf8"));
  return `${where}: ${name} ${version}. Its source is at ${homepage ?? repository.url ?? repository}\n\n${fs.readFileSync(path.join(folder, file), "utf8")}`;
});
fs.writeFileSync(path.join(target, "licenses.txt"), text.join(`\n${"-".repeat(80)}\n\n`));
fs.copyFileSync(path.join(here, "src/icon.svg"), path.join(target, "icon.svg"));

/** The parts that the first view needs. The browser loads them at once, and not one after the other. */
function parts(output, found = new Set()) {
  for (const { path: name, kind } of metafile.outputs[output].imports)
    if (kind === "import-statement" && !found.has(name)) parts(name, found.add(name));
  return found;
}
const app = Object.keys(metafile.outputs).find((name) => path.basename(name) === "app.js");
const links = [...parts(app)].map((name) => `<link rel="modulepreload" href="${path.basename(name)}">\n`);
const index = fs.readFileSync(path.join(here, "src/index.html"), "utf8");
const page = index.replace("FONT", font).replace("</head>", `${links.sort().join("")}</head>`);
fs.writeFileSync(path.join(target, "index.html"), page);

// The digest by which a test without Node.js sees that these files are older than their sources.
const sources = [
  ...fs.readdirSync(path.join(here, "src")).map((name) => `src/${name}`),
  "build.mjs",
  "package-lock.json",
  "tsconfig.json",
].sort();
const digest = crypto.createHash("sha256");
for (const name of sources) digest.update(`${name}\n`).update(fs.readFileSync(path.join(here, name)));
fs.writeFileSync(path.join(target, "sources.sha256"), `${digest.digest("hex")}\n`);
