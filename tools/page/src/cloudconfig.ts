// What is wrong with a cloud-init file, as far as its lines show: the form of YAML, and names and kinds of its keys.
import { t } from "./messages";

export interface Mistake {
  line: number;
  text: string;
}

type Shape = "list" | "map" | "text" | "any";
const named = (shape: Shape, words: string): [string, Shape][] => words.split(" ").map((word) => [word, shape]);

/** The keys of cloud-init's schema, by what their values are. */
const KEYS = new Map<string, Shape>([
  ...named("list", "bootcmd runcmd packages write_files mounts mount_default_fields ssh_authorized_keys ssh_import_id"),
  ...named("list", "ssh_genkeytypes ssh_fp_console_blacklist ssh_key_console_blacklist fs_setup cloud_init_modules"),
  ...named("list", "cloud_config_modules cloud_final_modules"),
  ...named("map", "apt chpasswd growpart ntp power_state phone_home rh_subscription snap swap yum_repos ca_certs chef"),
  ...named("map", "puppet salt_minion ansible disk_setup random_seed resolv_conf keyboard lxd mcollective landscape"),
  ...named("map", "ubuntu_pro ubuntu_advantage wireguard system_info device_aliases ssh ssh_keys ssh_publish_hostkeys"),
  ...named(
    "map",
    "apk_repos fan output reporting updates vendor_data drivers autoinstall zypper spacewalk ca-certs rpi",
  ),
  ...named(
    "text",
    "hostname fqdn locale locale_configfile timezone package_update package_upgrade password ssh_pwauth",
  ),
  ...named("text", "package_reboot_if_required manage_etc_hosts manage_resolv_conf preserve_hostname disable_root"),
  ...named("text", "prefer_fqdn_over_hostname create_hostname_file disable_root_opts ssh_deletekeys final_message"),
  ...named("text", "byobu_by_default resize_rootfs no_ssh_fingerprints authkey_hash allow_public_ssh_keys"),
  ...named("text", "ssh_quiet_keygen disable_ec2_metadata yum_repo_dir apt_pipelining manual_cache_clean"),
  ...named("any", "users user groups merge_how merge_type launch-index datasource rsyslog"),
]);

/** How many letters two words differ in. */
function distance(left: string, right: string): number {
  let row = Array.from({ length: right.length + 1 }, (_, at) => at);
  for (let i = 1; i <= left.length; i++) {
    const next = [i];
    for (let j = 1; j <= right.length; j++)
      next.push(Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (left[i - 1] === right[j - 1] ? 0 : 1)));
    row = next;
  }
  return row[right.length]!;
}
const alike = (word: string): string | undefined =>
  [...KEYS.keys()]
    .map((key) => ({ key, far: distance(word, key) }))
    .filter(({ key, far }) => far <= Math.min(2, key.length / 3))
    .sort((a, b) => a.far - b.far)[0]?.key;

const indentOf = (line: string): number => line.length - line.trimStart().length;
const isContent = (line: string): boolean => !!line.trim() && !line.trimStart().startsWith("#");

/** What a value is, by the text after its key, or else by the first line below. An empty one can be anything. */
function shapeOf(inline: string, below: string | undefined): Shape {
  const value = inline.replace(/^#.*|\s#.*$/, "").trim();
  const first = value || (below?.trim() ?? "");
  if (!first || /^[&*!]/.test(first)) return "any";
  if (value) return value.startsWith("[") ? "list" : value.startsWith("{") ? "map" : "text";
  if (/^-(\s|$)/.test(first)) return "list";
  return /^("[^"]*"|'[^']*'|[^\s:]+):(\s|$)/.test(first) ? "map" : "text";
}

const SHOULD = (): Record<string, string> => ({
  list: t("has to be a list, with a line of “- ” for each item"),
  map: t("has to have keys of its own below it"),
  text: t("has to be one value"),
});

/** Mistakes of a text that begins with #cloud-config, line by line. JSON and templates are left to cloud-init. */
export function mistakes(data: string): Mistake[] {
  if (!/^#cloud-config\s*$/m.test(data.split("\n")[0] ?? "")) return [];
  const lines = data.split("\n").map((line) => line.trimEnd());
  const found: Mistake[] = [];
  const say = (at: number, ...words: string[]) => found.push({ line: at + 1, text: words.join(" ") });
  const seen = new Map<string, number>();
  let base = 0; // the indent of what is below the current key
  let isFree = false; // its value has begun beside the key
  for (const [at, line] of lines.entries()) {
    if (!isContent(line) || /^(---|\.\.\.)/.test(line)) continue;
    if (/^\s*\t/.test(line)) {
      say(at, t("YAML does not allow tabs at the start of a line."));
      continue;
    }
    const indent = indentOf(line);
    if (indent || /^-(\s|$)/.test(line)) {
      if (!seen.size) say(at, t("A key has to come first."));
      else if (!isFree && base && indent < base) say(at, t("This line begins further left than those above it."));
      else if (!base) base = indent;
      continue;
    }
    if (/^[[{]/.test(line)) return found;
    const [, key = "", inline = ""] = /^["']?([\w-]+)["']?\s*:(?:\s+(.*))?$/.exec(line) ?? [];
    if (!key) {
      say(at, t("This is no KEY: VALUE. A space has to follow the colon."));
      continue;
    }
    const below = lines.slice(at + 1).find(isContent);
    const shape = shapeOf(inline, below && (indentOf(below) || below.startsWith("-")) ? below : undefined);
    isFree = /^[^#]/.test(inline);
    base = 0;
    const wanted = KEYS.get(key);
    const meant = wanted ? undefined : alike(key);
    if (seen.has(key)) say(at, key, t("is there already, in line"), String(seen.get(key)));
    else if (!wanted) say(at, t("cloud-init has no key"), meant ? `${key}; ${t("did you mean")} ${meant}?` : `${key}.`);
    else if (wanted !== "any" && shape !== "any" && shape !== wanted) say(at, key, `${SHOULD()[wanted]}.`);
    seen.set(key, at + 1);
  }
  return found;
}
