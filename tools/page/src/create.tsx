// A new server, on one screen: with defaults that work, and with what the quota and the hosts say before the click.
import type { VNode } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { all, call, list } from "./api";
import { unmarked } from "./called";
import { type Mistake, mistakes } from "./cloudconfig";
import type { ComputeLimits, Flavor, NewServer } from "./compute.types";
import { type Draft, EMPTY, keepDraft, loadDraft, NEW, sent } from "./draft";
import { Icon } from "./icons";
import { t } from "./messages";
import type { NetworkReply, Port, SecurityGroup } from "./network.types";
import { freeName, makeKey, makesKeys } from "./newkey";
import { notify } from "./noticeboard";
import { save } from "./notices";
import { groupCommands, groupFor, groupOf, nameFor, type Opening, openings, ownGroups } from "./openings";
import { bootable } from "./servers";
import { has, link, may, shared, useData } from "./state";
import { Command, command, Failure, Head, Share, size, Waiting } from "./ui";

/** What a new server boots from. `min_disk` in GB, `min_ram` in MB. */
interface Source {
  id: string;
  name: string | null;
  min_disk: number;
  min_ram: number;
  disk_format?: string | null;
}

/** Volumes and snapshots that a server can boot from. A volume with snapshots is there as long as they are. */
async function storage(): Promise<Source[]> {
  const [volumes, snapshots] = await Promise.all([
    all("volume", "/volumes/detail", "volumes"),
    all("volume", "/snapshots/detail", "snapshots"),
  ]);
  const bootable = new Set(volumes.filter((row) => row.bootable === "true").map((row) => row.id));
  const source = (kind: string, word: string) => (row: { id: string; name: string | null; size: number }) => ({
    id: `${kind}:${row.id}`,
    name: `${word} ${row.name || row.id} – ${row.size} GB`,
    min_disk: 0,
    min_ram: 0,
  });
  return [
    ...volumes.filter((row) => bootable.has(row.id) && row.status === "available").map(source("volume", t("volume"))),
    ...snapshots
      .filter((row) => bootable.has(row.volume_id) && row.status === "available")
      .map(source("snapshot", t("snapshot"))),
  ];
}

/** What a new server can have. */
interface Choices {
  images: (Source & { image_type?: string; os_type?: string })[];
  sources: Source[];
  flavors: { id: string; name: string; disk: number; ram: number }[];
  networks: { id: string; name: string }[];
  outside: { id: string; name: string }[];
  keys: { name: string }[];
  makes: boolean; // the browser makes keys, and the user may add them
  together: { id: string }[];
}

/** Replace what a draft chooses and is not there. */
export function corrected(draft: Draft, data: Choices): Draft {
  const known = (rows: { id: string }[], id: string) => rows.some((row) => row.id === id);
  const named = (rows: { id: string; name: string }[], text: string): string | undefined =>
    rows.find((row) => row.id === text || row.name === text)?.id;
  // Snapshots and backups of servers are images as well, and often the newest ones.
  const usual = data.images.find((item) => !item.image_type) ?? data.images[0];
  const image = known(data.sources, draft.image) ? draft.image : (usual?.id ?? "");
  const least = data.sources.find((item) => item.id === image)?.min_disk ?? 0;
  const enough = data.flavors.find((flavor) => flavor.disk >= least && flavor.ram >= 512) ?? data.flavors[0];
  const flavor = named(data.flavors, draft.flavor) ?? enough?.id ?? "";
  const isKey = data.keys.some((item) => item.name === draft.key) || (draft.key === NEW && data.makes);
  const key = isKey || draft.key === "" ? draft.key : (data.keys[0]?.name ?? null);
  const outside = known(data.outside, draft.outside) ? draft.outside : "";
  const network = draft.network === "none" ? "none" : (named(data.networks, draft.network) ?? "auto");
  const group = known(data.together, draft.group) ? draft.group : "";
  return { ...draft, image, flavor, key, network, outside, group };
}

/** What a preset sets, on top of what the form has. It replaces no user data, and chooses no image that is not there. */
export const presets = (): { label: string; of(draft: Draft, data: Choices): Partial<Draft> }[] => {
  const key = (draft: Draft, data: Choices) => draft.key || data.keys[0]?.name || (data.makes ? NEW : "");
  const also = (draft: Draft, ...names: string[]) => (mayOpen() ? [...new Set([...draft.lets, ...names])] : []);
  return [
    { label: t("Linux with SSH"), of: (draft, data) => ({ key: key(draft, data), lets: also(draft, "ssh") }) },
    {
      label: t("Web server"),
      of: (draft, data) => ({
        key: key(draft, data),
        lets: also(draft, "ssh", "web"),
        data: draft.data || "#cloud-config\npackage_update: true\npackages:\n- nginx\n",
      }),
    },
    {
      label: "Windows",
      of: (draft, data) => {
        const image = data.images.find((item) => item.os_type === "windows" || /windows/i.test(item.name ?? ""));
        const flavor = data.flavors.find((item) => item.ram >= 4096 && (!item.disk || item.disk >= 40));
        return {
          key: "",
          lets: also(draft, "rdp"),
          ...(image ? { image: image.id } : {}),
          ...(flavor ? { flavor: flavor.id } : {}),
        };
      },
    },
  ];
};

const mayOpen = (): boolean => has("network") && may("create_security_group", "create_security_group_rule");
const openingsOf = (draft: Draft): Opening[] =>
  draft.network === "none" ? [] : openings(shared.address).filter(({ name }) => draft.lets.includes(name));
/** Whether a server has no way to log in: no key, and neither user data nor a desktop that may have one. */
export const isClosed = (draft: Draft): boolean => !draft.key && !draft.data.trim() && !draft.lets.includes("rdp");
const floats = (draft: Draft): boolean => !!draft.outside && draft.count === 1 && draft.network !== "none";

/** Make the key that the browser is to make, offer its file, and return its name. */
async function addedKey(taken: string[]): Promise<string> {
  const name = freeName(shared.session!.user.name, taken);
  const made = await makeKey(name);
  await call("compute", "POST", "/os-keypairs", { keypair: { name, type: "ssh", public_key: made.public } });
  const file = { name: `${name}.key`, text: made.private };
  save(file);
  notify({ words: t("The new private key is in no other place than this tab and the file. Keep the file."), file });
  return name;
}

/** Groups of a new server: those that are chosen, or else the default one, and those of its openings. */
async function groupsFor(draft: Draft): Promise<string[]> {
  const found: string[] = [];
  for (const opening of openingsOf(draft)) found.push(await groupFor(opening));
  return found.length && !draft.groups.length ? ["default", ...found] : [...draft.groups, ...found];
}

/** Milliseconds between two looks for the port of a new server, and how many there are. */
const LOOK = 1000;
const LOOKS = 120;

/** The first port of a new server, once it is there. */
export async function portOf(server: string, wait = LOOK): Promise<Port> {
  for (let look = 0; look < LOOKS; look++) {
    const ports = await list("network", `/ports?device_id=${server}`, "ports");
    const port = ports.find((item) => item.fixed_ips.length);
    if (port) return port;
    if ((await call("compute", "GET", `/servers/${server}`)).server.status === "ERROR")
      throw new Error("The server has failed before it had a port.");
    await new Promise((done) => setTimeout(done, wait));
  }
  throw new Error("The server has got no port.");
}

/** Give a new server a floating address, wherever the user is meanwhile. */
async function float(server: string, name: string, outside: string): Promise<void> {
  try {
    const { id } = await portOf(server);
    await call("network", "POST", "/floatingips", { floatingip: { floating_network_id: outside, port_id: id } });
  } catch (error) {
    notify({ words: `${t("No floating address for")} ${name}`, error: error as Error, view: "floating-addresses" });
  }
}

export function Create(): VNode {
  const [draft, set] = useState<Draft>(loadDraft);
  const [error, setError] = useState<Error | null>(null);
  const [busy, setBusy] = useState(false);
  const [key] = useState(() => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`);
  const change = (values: Partial<Draft>) => {
    set((old) => {
      const next = { ...old, ...values };
      keepDraft(next);
      return next;
    });
  };
  const {
    data,
    error: failed,
    reload,
  } = useData(
    async () => {
      const [images, flavors, networks, keys, groups, zones, limits, together, stored, quota, makes] =
        await Promise.all([
          bootable(),
          list("compute", "/flavors/detail?sort_key=memory_mb", "flavors"),
          has("network") ? list("network", "/networks", "networks") : [],
          list("compute", "/os-keypairs", "keypairs"),
          has("network") ? ownGroups() : [],
          list("compute", "/os-availability-zone", "availabilityZoneInfo"),
          call("compute", "GET", "/limits").then((found) => found.limits.absolute),
          may("os_compute_api:os-server-groups:index") ? list("compute", "/os-server-groups", "server_groups") : [],
          has("volume") ? storage() : [],
          has("network")
            ? call("network", "GET", `/quotas/${shared.session!.project!.id}/details.json`).then(
                (found) => found.quota,
                () => ({}),
              )
            : {},
          may("os_compute_api:os-keypairs:create") && makesKeys(),
        ]);
      return {
        images,
        sources: [...images, ...stored] as Source[],
        flavors,
        networks: networks.filter((network) => !network["router:external"]),
        outside: may("create_floatingip") ? networks.filter((network) => network["router:external"]) : [],
        keys: keys.map((item) => item.keypair),
        groups,
        zones,
        limits,
        together,
        quota: quota as NetworkReply["quota"],
        makes,
      };
    },
    ["create"],
    0,
  );
  // The draft may have changed since the choices were drawn: an effect runs later.
  useEffect(() => {
    if (data) set((old) => corrected(old, data));
  }, [data]);
  // A phone shows some of the flavors at a time: the chosen one is among them.
  const cards = useRef<HTMLFieldSetElement>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it scrolls once, when the cards are there.
  useEffect(() => {
    const chosen = cards.current?.querySelector<HTMLElement>("label.on");
    if (chosen) cards.current!.scrollTop = chosen.offsetTop - 40;
  }, [draft.flavor !== "" && !!data]);
  const flavor = data?.flavors.find((item) => item.id === draft.flavor);
  const image = data?.sources.find((item) => item.id === draft.image);
  const fits = useFit(flavor);
  if (!data)
    return failed ? (
      <>
        <Head title={t("Create a server")} />
        <Failure error={failed} retry={reload} />
      </>
    ) : (
      <Waiting />
    );
  const notes = problems(draft, flavor, image, data.limits);
  const isIso = image?.disk_format === "iso";
  const installs = installsOn(draft, flavor, image);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      let own = draft;
      if (draft.key === NEW) {
        // The key stays if what follows fails, and the next attempt has it.
        own = { ...draft, key: await addedKey(data.keys.map((item) => item.name)) };
        change({ key: own.key });
      }
      const whole = { ...own, volume: isOnVolume(own, image), groups: await groupsFor(own) };
      const body = {
        server: bodyOf(whole, flavor?.disk ?? 0, installs),
        ...(draft.group ? { "os:scheduler_hints": { group: draft.group } } : {}),
      };
      const made = await call("compute", "POST", "/servers", body, {
        headers: { "Idempotency-Key": `${key}-${hash(JSON.stringify(body))}` },
      });
      keepDraft(null);
      sent.set(made.server.id, own);
      if (floats(own)) void float(made.server.id, own.name, own.outside);
      location.hash = draft.count > 1 ? link("servers") : link("servers", made.server.id);
    } catch (problem) {
      setError(problem as Error);
      reload();
    }
    setBusy(false);
  };
  return (
    <>
      <nav class="path" aria-label={t("Path")}>
        <a href={link("servers")}>{t("Servers")}</a> / {t("new")}
      </nav>
      <Head title={t("Create a server")} />
      <form class="split" onSubmit={submit}>
        <div>
          <div class="buttons presets" role="group" aria-label={t("Presets")}>
            <span class="label">{t("Presets")}</span>
            {presets().map(({ label, of }) => (
              <button key={label} type="button" onClick={() => change(of(draft, data))}>
                {label}
              </button>
            ))}
          </div>
          <div class="row">
            <Text label={t("Name")} value={draft.name} change={(name) => change({ name })} required />
            <Text
              label={t("Number of servers")}
              kind="number"
              value={String(draft.count)}
              change={(count) => change({ count: Math.max(1, Number(count) || 1) })}
              required
            />
          </div>
          <Pick
            label={t("Boot source")}
            value={draft.image}
            change={(image) => change({ image })}
            options={data.sources.map((item) => [item.id, item.name || item.id])}
            empty={<a href={link("images")}>{t("Upload an image first.")}</a>}
          />
          {isIso && has("volume") && (
            <fieldset class="ticks">
              <legend>{t("Installation")}</legend>
              <Tick
                label={t("Install from this ISO, onto a new volume")}
                checked={installs > 0}
                change={(on) => change({ install: on ? null : 0 })}
              />
              {installs > 0 && (
                <Text
                  label={t("Size of the volume in GB")}
                  kind="number"
                  value={String(installs)}
                  change={(text) => change({ install: Math.max(1, Math.floor(Number(text)) || 1) })}
                  required
                />
              )}
            </fieldset>
          )}
          <fieldset class="cards" ref={cards}>
            <legend>{t("Flavor")}</legend>
            {data.flavors.map((item) => (
              <label key={item.id} class={item.id === draft.flavor ? "on" : ""}>
                <input
                  type="radio"
                  name="flavor"
                  value={item.id}
                  checked={item.id === draft.flavor}
                  onChange={() => change({ flavor: item.id })}
                />
                <b>{item.name}</b>
                <small>
                  {item.vcpus} CPU · {size(item.ram)} · {item.disk} GB
                </small>
              </label>
            ))}
          </fieldset>
          {has("network") && (
            <Pick
              label={t("Network")}
              value={draft.network}
              change={(network) => change({ network })}
              options={[
                ["auto", t("Automatic: the project's network")],
                ...data.networks.map((item) => [item.id, item.name || item.id] as [string, string]),
                ["none", t("None")],
              ]}
            />
          )}
          {data.outside.length > 1 && draft.network !== "none" && (
            <Pick
              label={t("Floating address")}
              value={draft.outside}
              change={(outside) => change({ outside })}
              options={[
                ["", t("None")],
                ...data.outside.map((item) => [item.id, item.name || item.id] as [string, string]),
              ]}
            />
          )}
          {draft.network !== "none" && (mayOpen() || data.outside.length === 1) && (
            <fieldset class="ticks">
              <legend>{t("From outside")}</legend>
              {mayOpen() &&
                openings(shared.address).map((item) => (
                  <Tick
                    key={item.name}
                    label={item.label}
                    checked={draft.lets.includes(item.name)}
                    change={(on) => change({ lets: toggled(draft.lets, item.name, on) })}
                  />
                ))}
              {data.outside.length === 1 && (
                <Tick
                  label={t("Floating address, which the outside reaches")}
                  checked={!!draft.outside}
                  change={(on) => change({ outside: on ? data.outside[0]!.id : "" })}
                />
              )}
            </fieldset>
          )}
          <Pick
            label={t("Key")}
            value={draft.key ?? ""}
            change={(key) => change({ key })}
            options={[
              ["", t("None: nobody can log in with SSH")],
              ...(data.makes ? ([[NEW, t("New key, made in this browser")]] as [string, string][]) : []),
              ...data.keys.map((item) => [item.name, item.name] as [string, string]),
            ]}
            help={
              draft.key === NEW ? (
                t("The browser saves the private key as a file, and sends the public one alone.")
              ) : isClosed(draft) ? (
                <span class="warned">
                  <Icon name="warning" />
                  <span>
                    {t("Nobody can log in to this server.")}{" "}
                    {data.makes ? (
                      <button type="button" class="plain" onClick={() => change({ key: NEW })}>
                        {t("Make a key")}
                      </button>
                    ) : (
                      <a href={link("keys")}>{t("Add a key first, to log in with SSH.")}</a>
                    )}
                  </span>
                </span>
              ) : undefined
            }
          />
          <details
            open={!!(draft.data || draft.groups.length || draft.zone || draft.metadata || draft.volume || draft.group)}
          >
            <summary>{t("More choices")}</summary>
            {data.groups.length > 0 && (
              <div class="field">
                <span class="label">{t("Security groups")}</span>
                <div class="many" role="group" aria-label={t("Security groups")}>
                  {data.groups.map((item) => (
                    <Tick
                      key={item.id}
                      label={item.name}
                      checked={draft.groups.includes(item.name)}
                      change={(on) => change({ groups: toggled(draft.groups, item.name, on) })}
                    />
                  ))}
                </div>
                <small>{t("Without a choice it is the group default.")}</small>
              </div>
            )}
            {has("volume") && flavor && sourceOf(draft).kind === "image" && !isIso && (
              <Tick
                label={t("Boot from a new volume, which can outlive the server")}
                checked={draft.volume}
                change={(volume) => change({ volume })}
              />
            )}
            {data.zones.length > 1 && (
              <Pick
                label={t("Zone")}
                value={draft.zone}
                change={(zone) => change({ zone })}
                options={[
                  ["", t("Any")],
                  ...data.zones.map((item) => [item.zoneName, item.zoneName] as [string, string]),
                ]}
              />
            )}
            {data.together.length > 0 && (
              <Pick
                label={t("Server group")}
                value={draft.group}
                change={(group) => change({ group })}
                options={[
                  ["", t("None")],
                  ...data.together.map(
                    (item) => [item.id, `${unmarked(item.name)} (${item.policy})`] as [string, string],
                  ),
                ]}
              />
            )}
            <Area
              label={t("User data")}
              value={draft.data}
              change={(data) => change({ data })}
              help={t("A script that starts with #!, or a cloud-init file that starts with #cloud-config.")}
              notes={mistakes(draft.data)}
            />
            <Area
              label={t("Metadata")}
              value={draft.metadata}
              change={(metadata) => change({ metadata })}
              help={t("One KEY=VALUE a line.")}
            />
          </details>
        </div>
        <aside aria-label={t("What it takes")}>
          <h2>{t("What it takes")}</h2>
          <Quota limits={data.limits} quota={data.quota} groups={data.groups} draft={draft} flavor={flavor} />
          {fits && (
            <p class={`fit ${fits.hosts.length ? "good" : "bad"}`}>
              {fits.hosts.length
                ? `${t("Hosts with room now")}: ${fits.hosts.slice(0, 5).join(", ")}${fits.hosts.length > 5 ? ` … (${fits.hosts.length})` : ""}`
                : t("No host has room for this flavor now.")}
            </p>
          )}
          {notes.length > 0 && (
            <ul class="notes">
              {notes.map((note) => (
                <li key={note}>{note}</li>
              ))}
            </ul>
          )}
          <Failure error={error} />
          <button type="submit" class="primary big" disabled={busy || !draft.image || !draft.flavor}>
            {busy
              ? t("Working…")
              : draft.count > 1
                ? `${t("Create servers")} (${draft.count})`
                : t("Create the server")}
          </button>
          <button
            type="button"
            class="plain"
            onClick={() => {
              keepDraft(null);
              set({ ...EMPTY, image: draft.image, flavor: draft.flavor });
            }}
          >
            {t("Start again")}
          </button>
          <Command text={commandOf(draft, flavor, image, data)} />
        </aside>
      </form>
    </>
  );
}

/** What the Placement API says about room, to those who may ask it. */
function useFit(flavor: Flavor | undefined): { hosts: string[] } | null {
  const [result, set] = useState<{ hosts: string[] } | null>(null);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a flavor never changes what it takes.
  useEffect(() => {
    set(null);
    if (!flavor || !has("placement") || !may("placement:allocation_candidates:list")) return;
    let live = true;
    const resources = [
      `VCPU:${flavor.vcpus}`,
      `MEMORY_MB:${flavor.ram}`,
      ...(flavor.disk ? [`DISK_GB:${flavor.disk}`] : []),
    ].join(",");
    const providers = list("placement", "/resource_providers", "resource_providers");
    void Promise.all([
      call("placement", "GET", `/allocation_candidates?resources=${resources}&limit=1000`),
      providers,
    ]).then(
      ([found, known]) => {
        const names = new Map(known.map((row) => [row.uuid, row.name]));
        if (live)
          set({
            hosts: Object.keys(found.provider_summaries)
              .map((id) => names.get(id) ?? id)
              .sort(),
          });
      },
      () => undefined,
    );
    return () => {
      live = false;
    };
  }, [flavor?.id]);
  return result;
}

/** Whether the image is copied onto a new volume, which can outlive the server. An ISO image is a drive instead. */
const isOnVolume = (draft: Draft, image: Partial<Source> | undefined): boolean =>
  draft.volume && image?.disk_format !== "iso";

/** GB of a volume for a system that nobody has chosen a size for. */
const SYSTEM = 20;

/** GB of the new volume that an ISO image installs a system on. 0: none. */
export function installsOn(draft: Draft, flavor: Flavor | undefined, image: Partial<Source> | undefined): number {
  if (image?.disk_format !== "iso" || !has("volume")) return 0;
  return draft.install ?? Math.max(SYSTEM, flavor?.disk ?? 0, image.min_disk ?? 0);
}

export function problems(
  draft: Draft,
  flavor: Flavor | undefined,
  image: Pick<Source, "min_disk" | "min_ram" | "disk_format"> | undefined,
  limits: ComputeLimits,
): string[] {
  const notes: string[] = [];
  if (!flavor || !image) return notes;
  if (image.min_disk > flavor.disk && flavor.disk && !isOnVolume(draft, image))
    notes.push(`${t("The image needs a larger disk")}: ${image.min_disk} GB.`);
  if (image.min_ram > flavor.ram) notes.push(`${t("The image needs more memory")}: ${image.min_ram} MB.`);
  const over = (limit: number, used: number, more: number) => limit >= 0 && used + more > limit;
  if (
    over(limits.maxTotalInstances, limits.totalInstancesUsed, draft.count) ||
    over(limits.maxTotalCores, limits.totalCoresUsed, draft.count * flavor.vcpus) ||
    over(limits.maxTotalRAMSize, limits.totalRAMUsed, draft.count * flavor.ram)
  )
    notes.push(t("This is more than the project's quota has left."));
  if (
    draft.data.trim() &&
    !/^(#!|#cloud-config|#include|#cloud-boothook|#part-handler|Content-Type:|MIME-Version:|## template: jinja)/.test(
      draft.data.trimStart(),
    )
  )
    notes.push(t("The user data start with nothing that cloud-init knows: #!, #cloud-config, or a MIME header."));
  notes.push(...mistakes(draft.data).map(({ line, text }) => `${t("Line")} ${line}: ${text}`));
  if (new Blob([draft.data]).size > 49149) notes.push(t("The user data are longer than 48 KiB."));
  if (draft.count > 1 && sourceOf(draft).kind === "volume") notes.push(t("A volume boots one server."));
  if (draft.outside && draft.count > 1) notes.push(t("Several servers get no floating address."));
  if (draft.network === "none") notes.push(t("Without a network nobody reaches the server."));
  return notes;
}

export const metadataOf = (text: string): Record<string, string> =>
  Object.fromEntries(
    text
      .split("\n")
      .map((line) => line.trim())
      .filter(Boolean)
      .map((line) => {
        const at = line.indexOf("=");
        return at < 0 ? [line, ""] : [line.slice(0, at).trim(), line.slice(at + 1).trim()];
      }),
  );

/** The kind and the id of what a server boots from. */
function sourceOf({ image }: Draft): { kind: "image" | "volume" | "snapshot"; id: string } {
  const [, kind, id] = /^(volume|snapshot):(.*)/.exec(image) ?? [];
  return id ? { kind: kind as "volume" | "snapshot", id } : { kind: "image", id: image };
}

/** `disk`: GB of the flavor. `installs`: GB of an empty volume beside the image, which stays when the server is deleted. */
export function bodyOf(draft: Draft, disk: number, installs = 0): NewServer["server"] {
  const body: NewServer["server"] = {
    name: draft.name,
    flavorRef: draft.flavor,
    networks: draft.network === "auto" || draft.network === "none" ? draft.network : [{ uuid: draft.network }],
  };
  const { kind, id } = sourceOf(draft);
  if (installs) {
    body.imageRef = id;
    body.block_device_mapping_v2 = [
      {
        boot_index: 1,
        source_type: "blank",
        destination_type: "volume",
        volume_size: installs,
        delete_on_termination: false,
      },
    ];
  } else if (draft.volume || kind !== "image")
    body.block_device_mapping_v2 = [
      {
        boot_index: 0,
        uuid: id,
        source_type: kind,
        destination_type: "volume",
        ...(kind === "image" ? { volume_size: Math.max(1, disk) } : {}),
        delete_on_termination: false,
      },
    ];
  else body.imageRef = id;
  if (draft.key) body.key_name = draft.key;
  if (draft.count > 1) body.min_count = body.max_count = draft.count;
  if (draft.groups.length) body.security_groups = draft.groups.map((name) => ({ name }));
  if (draft.zone) body.availability_zone = draft.zone;
  if (draft.data.trim()) body.user_data = btoa(String.fromCharCode(...new TextEncoder().encode(draft.data)));
  if (draft.metadata.trim()) body.metadata = metadataOf(draft.metadata);
  return body;
}

/** The commands that do what the form does: those before the server's, its own, and those after it. */
export function commandOf(
  draft: Draft,
  flavor: Flavor | undefined,
  image: Partial<Source> | undefined,
  data: Pick<Choices, "keys" | "outside"> & { groups: SecurityGroup[] } = { keys: [], outside: [], groups: [] },
): string {
  const { kind, id } = sourceOf(draft);
  const installs = installsOn(draft, flavor, image);
  const taken = data.keys.map((item) => item.name);
  const key = draft.key === NEW ? freeName(shared.session!.user.name, taken) : draft.key;
  const open = openingsOf(draft).map((opening) => {
    const found = groupOf(opening, data.groups);
    return { opening, found, group: found?.id ?? nameFor(opening, data.groups) };
  });
  const groups = [...(open.length && !draft.groups.length ? ["default"] : draft.groups)];
  const outside = floats(draft) && data.outside.find((item) => item.id === draft.outside);
  return [
    ...(draft.key === NEW ? [command("openstack keypair create --private-key", `${key}.key`, key)] : []),
    ...open.flatMap(({ opening, found, group }) => (found ? [] : groupCommands(opening, group))),
    command(
      "openstack server create",
      [`--${kind}`, (kind === "image" && image?.name) || id || "IMAGE"],
      ["--flavor", flavor?.name || draft.flavor || "FLAVOR"],
      ["--network", draft.network],
      key && ["--key-name", key],
      installs > 0 && [
        "--block-device",
        `source_type=blank,destination_type=volume,boot_index=1,volume_size=${installs},delete_on_termination=false`,
      ],
      isOnVolume(draft, image) && kind === "image" && flavor && ["--boot-from-volume", Math.max(1, flavor.disk)],
      draft.count > 1 && ["--min", draft.count, "--max", draft.count],
      [...groups, ...open.map(({ group }) => group)].flatMap((name) => ["--security-group", name]),
      draft.zone && ["--availability-zone", draft.zone],
      draft.group && ["--server-group", draft.group],
      draft.data.trim() && ["--user-data", "FILE"],
      Object.entries(metadataOf(draft.metadata)).flatMap(([name, value]) => ["--property", `${name}=${value}`]),
      draft.name || "NAME",
    ),
    ...(outside
      ? [
          command("openstack floating ip create", outside.name || outside.id),
          command("openstack server add floating ip", draft.name || "NAME", "ADDRESS"),
        ]
      : []),
  ].join("\n");
}

function hash(text: string): string {
  let value = 0;
  for (const char of text) value = (value * 31 + char.codePointAt(0)!) >>> 0;
  return value.toString(16);
}

function Quota({
  limits,
  quota,
  groups,
  draft,
  flavor,
}: {
  limits: ComputeLimits;
  quota: NetworkReply["quota"];
  groups: SecurityGroup[];
  draft: Draft;
  flavor: Flavor | undefined;
}): VNode {
  const row = (name: string, used: number, more: number, total: number, show: (value: number) => string = String) => (
    <div key={name} class="quota">
      <span>{name}</span>
      <Share
        used={used}
        more={more}
        total={total}
        label={total < 0 ? `${show(used)} + ${show(more)}` : `${show(used)} + ${show(more)} / ${show(total)}`}
      />
    </div>
  );
  const { floatingip, security_group } = quota;
  const made = openingsOf(draft).filter((opening) => !groupOf(opening, groups)).length;
  return (
    <>
      {row(t("Servers"), limits.totalInstancesUsed, draft.count, limits.maxTotalInstances)}
      {row(t("CPUs"), limits.totalCoresUsed, draft.count * (flavor?.vcpus ?? 0), limits.maxTotalCores)}
      {row(t("Memory"), limits.totalRAMUsed, draft.count * (flavor?.ram ?? 0), limits.maxTotalRAMSize, size)}
      {floats(draft) && floatingip && row(t("Floating addresses"), floatingip.used, 1, floatingip.limit)}
      {made > 0 && security_group && row(t("Security groups"), security_group.used, made, security_group.limit)}
    </>
  );
}

// --- controls

const idOf = (label: string): string => `create-${label.replace(/\W+/g, "-")}`;

function Text({
  label,
  value,
  change,
  required,
  kind,
}: {
  label: string;
  value: string;
  change: (value: string) => void;
  required?: boolean;
  kind?: "number";
}): VNode {
  return (
    <div class="field">
      <label for={idOf(label)}>{label}</label>
      <input
        id={idOf(label)}
        type={(kind ?? "text") as "text"}
        autocomplete="off"
        min={kind && 1}
        maxLength={255}
        required={required ?? false}
        value={value}
        onInput={(event) => change(event.currentTarget.value)}
      />
    </div>
  );
}

const toggled = (names: string[], name: string, on: boolean): string[] =>
  on ? [...names, name] : names.filter((item) => item !== name);

function Tick({ label, checked, change }: { label: string; checked: boolean; change: (on: boolean) => void }): VNode {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => change(event.currentTarget.checked)} /> {label}
    </label>
  );
}

function Pick({
  label,
  value,
  change,
  options,
  help,
  empty,
}: {
  label: string;
  value: string;
  change: (value: string) => void;
  options: [string, string][];
  help?: VNode | string | undefined;
  empty?: VNode;
}): VNode {
  return (
    <div class="field">
      <label for={idOf(label)}>{label}</label>
      {options.length ? (
        <select id={idOf(label)} value={value} onChange={(event) => change(event.currentTarget.value)}>
          {options.map(([id, name]) => (
            <option key={id} value={id}>
              {name}
            </option>
          ))}
        </select>
      ) : (
        empty
      )}
      {help && <small>{help}</small>}
    </div>
  );
}

function Area({
  label,
  value,
  change,
  help,
  notes = [],
}: {
  label: string;
  value: string;
  change: (value: string) => void;
  help: string;
  notes?: Mistake[];
}): VNode {
  const element = useRef<HTMLTextAreaElement>(null);
  const show = (line: number) => {
    const lines = value.split("\n");
    const begin = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    element.current!.focus();
    element.current!.setSelectionRange(begin, begin + lines[line - 1]!.length);
  };
  return (
    <div class="field">
      <label for={idOf(label)}>
        {label} <i>{t("optional")}</i>
      </label>
      <textarea
        ref={element}
        id={idOf(label)}
        rows={Math.min(20, Math.max(5, value.split("\n").length + 1))}
        spellcheck={false}
        aria-describedby={`${idOf(label)}-help`}
        value={value}
        onInput={(event) => change(event.currentTarget.value)}
      />
      <small id={`${idOf(label)}-help`}>{help}</small>
      {notes.length > 0 && (
        <ul class="notes">
          {notes.map(({ line, text }) => (
            <li key={`${line} ${text}`}>
              <button type="button" class="plain" onClick={() => show(line)}>
                {t("Line")} {line}
              </button>{" "}
              {text}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
