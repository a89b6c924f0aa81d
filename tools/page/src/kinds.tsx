// The things of users, besides servers: images, volumes, networks, keys.
import type { VNode } from "preact";
import { type ApiError, all, call, list, send, upload } from "./api";
import { called, naming } from "./called";
import { freeServers, ownSubnets, Secret, serverAddresses } from "./choices";
import type { KeyPair } from "./compute.types";
import { createOf } from "./draft";
import { Forwardings, forward } from "./forwardings";
import type { Credential } from "./identity.types";
import type { Image } from "./image.types";
import type { Kind } from "./listing";
import { t } from "./messages";
import type { FloatingIp, Network, Port, Router, SecurityGroup, SecurityRule, Subnet } from "./network.types";
import type { CloudImage } from "./page.types";
import { limit } from "./qos";
import { Reach } from "./reach";
import { isBootable, names } from "./servers";
import { keep, kept, link, shared, useData } from "./state";
import { accept, offer, rename, retype, typeChoices, withdraw } from "./storage";
import { Table } from "./table";
import { Topology } from "./topology";
import {
  type Action,
  type Choice,
  command,
  Empty,
  Failure,
  type Field,
  Name,
  resulting,
  Share,
  Status,
  size,
  Time,
  type Values,
  Waiting,
} from "./ui";
import type { Snapshot, Volume } from "./volume.types";

const short = (id: string): string => id.slice(0, 8);
const title = (row: { id: string; name: string | null }): string => row.name || short(row.id);
const joined = (...parts: (string | null)[]): string => parts.filter(Boolean).join(" · ");
const bytes = (count: number | null): string =>
  count ? (count < 1048576 ? `${Math.ceil(count / 1024)} KB` : size(count / 1048576)) : "";
const owner = () => shared.session?.project?.id ?? "";
const isOwn = (row: { owner?: string | null; project_id?: string }): boolean =>
  (row.owner ?? row.project_id) === owner() || shared.session!.roles.includes("admin");

/** By this the page knows a file again, so that an upload goes on with the same one. */
const mark = (file: File): string => `${file.name} ${file.size} ${file.lastModified}`;
const sending = (progress: (text: string) => void) => (share: number, lost: boolean) =>
  progress(
    lost
      ? t("The connection is lost. The upload goes on when it is back.")
      : `${t("Sent")}: ${Math.floor(share * 100)} %`,
  );

/** Whether this cloud loads images by URL: the API says so, as its operator has listed hosts. */
let isLoading = false;
const importMethods = async (): Promise<void> => {
  const { "import-methods": found } = await call("image", "GET", "/info/import");
  isLoading = found.value.includes("web-download");
};

const FORMATS = ["qcow2", "raw", "iso", "vmdk", "vdi", "vhd"].map((value) => ({ value, label: value }));
const urlField = (): Field => ({
  name: "url",
  label: "URL",
  required: true,
  pattern: "https?://.+",
  help: t("The cloud loads the file itself, from hosts that its operator has listed."),
});
const load = (image: string, url: string) =>
  call("image", "POST", `/images/${image}/import`, { method: { name: "web-download", uri: url } });
/** Make an image, and let the cloud load it. */
async function loadNew(fields: Record<string, string | number>, url: string): Promise<void> {
  const image = await call("image", "POST", "/images", { container_format: "bare", ...fields });
  try {
    await load(image.id, url);
  } catch (error) {
    await call("image", "DELETE", `/images/${image.id}`).catch(() => undefined); // an image without data is of no use
    throw error;
  }
}
const loadCommand = (image: string, values: Values): string =>
  command("openstack image import --method web-download", ["--uri", values.url || "URL"], image);

/** Well-known images of distributors, once they are loaded. Those that need no mirror come first. */
let cloudImages: CloudImage[] = [];
const keyOf = (row: CloudImage): string => `${row.name} ${row.architecture}`;
async function cloudChoices(): Promise<Choice[]> {
  const { images } = await send<{ images: CloudImage[] }>("GET", "cloud-images");
  cloudImages = [...images.filter((row) => row.is_allowed), ...images.filter((row) => !row.is_allowed)];
  return cloudImages.map((row) => ({
    value: keyOf(row),
    label: `${row.name.replace("/", " ")}, ${row.architecture}${row.is_allowed ? "" : ` (${t("by a mirror")})`}`,
  }));
}
export const addressOf = (row: CloudImage, mirror: string): string =>
  `${(mirror || row.site).replace(/\/+$/, "")}/${row.path}`;
const chosenCloud = ({ what }: Values): CloudImage | undefined => cloudImages.find((row) => keyOf(row) === what);

const fromList = (): Action<object> => ({
  name: "list",
  label: t("Load a cloud image"),
  rule: ["image:add_image", "image:upload_image"],
  when: () => isLoading,
  confirm: t("The distributor's newest build. Its checksum is not compared, so take a mirror that you trust."),
  fields: [
    { name: "what", label: t("Image"), kind: "select", required: true, choices: cloudChoices },
    { name: "name", label: t("Name"), help: t("Without one it is that of the list.") },
    {
      name: "url",
      label: t("Mirror"),
      pattern: "https?://.+",
      help: t("An address with the same paths as the distributor's site."),
    },
  ],
  run: async (_, values) => {
    const row = chosenCloud(values);
    if (!row) throw new Error(t("Choose an image."));
    const { disk_format, properties } = row;
    await loadNew({ name: values.name || row.image, disk_format, ...properties }, addressOf(row, values.url));
  },
  command: (_, values) => {
    const row = chosenCloud(values);
    const name = values.name || row?.image || "NAME";
    return [
      command(
        "openstack image create --container-format bare",
        ["--disk-format", row?.disk_format ?? "qcow2"],
        Object.entries(row?.properties ?? {}).flatMap(([key, value]) => ["--property", `${key}=${value}`]),
        name,
      ),
      loadCommand(name, { ...values, url: row ? addressOf(row, values.url) : "" }),
    ].join("\n");
  },
});

export const images = (): Kind<Image> => ({
  path: "images",
  services: ["image", "compute"],
  title: t("Images"),
  one: t("image"),
  rule: "image:get_images",
  load: async () => (await Promise.all([all("image", "/images", "images"), importMethods()]))[0],
  show: async (id) => (await Promise.all([call("image", "GET", `/images/${id}`), importMethods()]))[0],
  nameOf: title,
  empty: t("There are no images yet. A server boots from one."),
  command: "openstack image list",
  below: (row) => joined(bytes(row.size), row.disk_format),
  filters: [{ name: "visibility", title: t("Visibility"), of: (row) => row.visibility }],
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: title,
      cell: (row) => <Name to={["images", row.id]}>{title(row)}</Name>,
    },
    {
      name: "status",
      title: t("Status"),
      narrow: true,
      text: (row) => row.status,
      cell: (row) => <Status value={row.status} />,
    },
    { name: "visibility", title: t("Visibility"), text: (row) => row.visibility },
    { name: "format", title: t("Format"), text: (row) => row.disk_format ?? "" },
    {
      name: "size",
      title: t("Size"),
      number: true,
      text: (row) => row.size ?? 0,
      cell: (row) => bytes(row.size),
    },
    {
      name: "created",
      title: t("Created"),
      text: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ],
  facts: (row) => [
    [t("Visibility"), row.visibility],
    [t("Format"), row.disk_format],
    [t("Size"), bytes(row.size)],
    [t("Smallest disk"), `${row.min_disk} GB`],
    [t("Smallest memory"), `${row.min_ram} MB`],
    [t("Created"), <Time at={row.created_at} />],
    [t("Protected"), row.protected && t("yes")],
    [t("Import"), row.os_glance_failed_import && t("It has failed. Load the image again.")],
    [
      t("Checksum"),
      row.os_hash_value && (
        <code>
          {row.os_hash_algo}: {row.os_hash_value}
        </code>
      ),
    ],
  ],
  create: [
    {
      name: "upload",
      label: t("Upload an image"),
      rule: "image:add_image",
      fields: [
        { name: "file", label: t("File"), kind: "file", required: true },
        { name: "name", label: t("Name"), required: true },
        {
          name: "format",
          label: t("Format"),
          kind: "select",
          required: true,
          choices: FORMATS,
        },
        { name: "disk", label: t("Smallest disk in GB"), kind: "number", min: 0, initial: "0" },
      ],
      run: async (_, values, progress) => {
        if (!values.file) throw new Error(t("Choose a file."));
        const image = await call("image", "POST", "/images", {
          name: values.name,
          disk_format: values.format,
          container_format: "bare",
          min_disk: Number(values.disk) || 0,
        });
        keep(`upload.${image.id}`, mark(values.file));
        try {
          await upload(image.id, values.file, false, sending(progress));
          keep(`upload.${image.id}`, "");
        } catch (error) {
          // What the API refuses is of no use. What a lost connection has left goes on later.
          if ((error as ApiError).status) await call("image", "DELETE", `/images/${image.id}`).catch(() => undefined);
          throw error;
        }
      },
      command: (_, values) =>
        command(
          "openstack image create --container-format bare",
          ["--disk-format", values.format],
          ["--file", values.file?.name ?? "FILE"],
          values.name || "NAME",
        ),
    },
    fromList(),
    {
      name: "load",
      label: t("Load an image by URL"),
      rule: ["image:add_image", "image:upload_image"],
      when: () => isLoading,
      fields: [
        urlField(),
        { name: "name", label: t("Name"), required: true },
        { name: "format", label: t("Format"), kind: "select", required: true, choices: FORMATS },
        { name: "disk", label: t("Smallest disk in GB"), kind: "number", min: 0, initial: "0" },
      ],
      run: (_, values) =>
        loadNew({ name: values.name, disk_format: values.format, min_disk: Number(values.disk) || 0 }, values.url),
      command: (_, values) =>
        [
          command(
            "openstack image create --container-format bare",
            ["--disk-format", values.format || "qcow2"],
            values.name || "NAME",
          ),
          loadCommand(values.name || "NAME", values),
        ].join("\n"),
    },
  ],
  actions: [
    createOf((row) => row.id, isBootable),
    {
      name: "rename",
      label: t("Change"),
      rule: "image:modify_image",
      single: true,
      when: isOwn,
      fieldsOf: (row) => [
        { name: "name", label: t("Name"), required: true, initial: row.name ?? "" },
        {
          name: "visibility",
          label: t("Visibility"),
          kind: "select",
          required: true,
          initial: row.visibility,
          choices: ["private", "shared", "community", "public"].map((value) => ({ value, label: value })),
          help: t("The API says whether you may share an image with all projects."),
        },
      ],
      run: (row, values) =>
        call(
          "image",
          "PATCH",
          `/images/${row.id}`,
          [
            ...(values.name === row.name ? [] : [{ op: "replace", path: "/name", value: values.name }]),
            ...(values.visibility === row.visibility
              ? []
              : [{ op: "replace", path: "/visibility", value: values.visibility }]),
          ],
          { headers: { "Content-Type": "application/openstack-images-v2.1-json-patch" } },
        ),
      command: (row, values) =>
        command("openstack image set", ["--name", values.name], `--${values.visibility}`, row.id),
    },
    {
      name: "resume",
      label: t("Go on with the upload"),
      rule: "image:upload_image",
      single: true,
      when: (row) => isOwn(row) && ["queued", "uploading", "saving"].includes(row.status),
      confirm: t("Choose the same file again. What has arrived is not sent twice."),
      fields: [{ name: "file", label: t("File"), kind: "file", required: true }],
      run: async (row, values, progress) => {
        const known = kept(`upload.${row.id}`);
        if (!values.file || (known && known !== mark(values.file)))
          throw new Error(t("This is another file than the one that was begun."));
        await upload(row.id, values.file, true, sending(progress));
        keep(`upload.${row.id}`, "");
      },
    },
    {
      name: "reload",
      label: t("Load it by URL"),
      rule: "image:upload_image",
      single: true,
      when: (row) => isLoading && isOwn(row) && row.status === "queued",
      fields: [urlField()],
      run: (row, values) => load(row.id, values.url),
      command: (row, values) => loadCommand(row.id, values),
    },
    {
      name: "deactivate",
      label: t("Deactivate"),
      rule: "image:deactivate",
      when: (row) => isOwn(row) && row.status === "active",
      run: (row) => call("image", "POST", `/images/${row.id}/actions/deactivate`),
      command: (row) => command("openstack image set --deactivate", row.id),
    },
    {
      name: "reactivate",
      label: t("Reactivate"),
      rule: "image:reactivate",
      when: (row) => isOwn(row) && row.status === "deactivated",
      run: (row) => call("image", "POST", `/images/${row.id}/actions/reactivate`),
      command: (row) => command("openstack image set --activate", row.id),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "image:delete_image",
      danger: true,
      when: isOwn,
      confirm: t("Servers that were made of it stay."),
      run: (row) => call("image", "DELETE", `/images/${row.id}`),
      command: (row) => command("openstack image delete", row.id),
    },
  ],
});

export const volumes = (): Kind<Volume> => ({
  path: "volumes",
  services: ["volume", "compute"],
  title: t("Volumes"),
  one: t("volume"),
  rule: "volume:get_all",
  load: () => naming(all("volume", "/volumes/detail", "volumes"), "servers"),
  show: async (id) => (await naming(call("volume", "GET", `/volumes/${id}`), "servers")).volume,
  nameOf: title,
  empty: t("There are no volumes. A volume is a disk that outlives servers."),
  command: "openstack volume list",
  below: (row) => joined(`${row.size} GB`, ...row.attachments.map((item) => called(item.server_id))),
  filters: [{ name: "status", title: t("Status"), of: (row) => row.status }],
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: title,
      cell: (row) => <Name to={["volumes", row.id]}>{title(row)}</Name>,
    },
    {
      name: "status",
      title: t("Status"),
      narrow: true,
      text: (row) => row.status,
      cell: (row) => <Status value={row.status} />,
    },
    {
      name: "size",
      title: t("Size"),
      number: true,
      text: (row) => row.size,
      cell: (row) => `${row.size} GB`,
    },
    {
      name: "server",
      title: t("Server"),
      text: (row) => row.attachments.map((item) => called(item.server_id)).join(" "),
      cell: (row) =>
        row.attachments.map((item) => (
          <a key={item.server_id} href={link("servers", item.server_id, "disks")}>
            {called(item.server_id)}
          </a>
        )),
    },
    { name: "boot", title: t("Bootable"), text: (row) => (row.bootable === "true" ? t("yes") : "") },
    {
      name: "created",
      title: t("Created"),
      text: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ],
  facts: (row) => [
    [t("Size"), `${row.size} GB`],
    [t("Type"), row.volume_type],
    [t("Bootable"), row.bootable === "true" && t("yes")],
    [
      t("Server"),
      row.attachments.map((item) => (
        <a key={item.server_id} href={link("servers", item.server_id, "disks")}>
          {called(item.server_id)}
        </a>
      )),
    ],
    [t("Created"), <Time at={row.created_at} />],
    [t("Description"), row.description],
  ],
  create: [
    {
      name: "create",
      label: t("Create a volume"),
      rule: "volume:create",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "size", label: t("Size in GB"), kind: "number", required: true, min: 1, initial: "10" },
        {
          name: "image",
          label: t("Content"),
          kind: "select",
          choices: async () => [
            { value: "", label: t("empty") },
            ...(await names.images()).map((image) => ({ ...image, label: `${t("image")} ${image.label}` })),
          ],
        },
        {
          name: "type",
          label: t("Volume type"),
          kind: "select",
          choices: async () => [{ value: "", label: t("the usual one") }, ...(await typeChoices())],
        },
      ],
      run: (_, values) =>
        call("volume", "POST", "/volumes", {
          volume: {
            name: values.name,
            size: Number(values.size),
            ...(values.image ? { imageRef: values.image } : {}),
            ...(values.type ? { volume_type: values.type } : {}),
          },
        }),
      command: (_, values) =>
        command(
          "openstack volume create",
          ["--size", values.size],
          values.image && ["--image", values.image],
          values.type && ["--type", values.type],
          values.name || "NAME",
        ),
    },
    accept(),
  ],
  actions: [
    createOf(
      (row) => `volume:${row.id}`,
      (row) => row.bootable === "true" && row.status === "available",
    ),
    {
      name: "attach",
      label: t("Attach to a server"),
      rule: "os_compute_api:os-volumes-attachments:create",
      single: true,
      when: (row) => row.status === "available",
      fields: [{ name: "server", label: t("Server"), kind: "select", required: true, choices: freeServers }],
      run: (row, values) =>
        call("compute", "POST", `/servers/${values.server}/os-volume_attachments`, {
          volumeAttachment: { volumeId: row.id },
        }),
      command: (row, values) => command("openstack server add volume", values.server || "SERVER", row.id),
    },
    {
      name: "detach",
      label: t("Detach"),
      rule: "os_compute_api:os-volumes-attachments:delete",
      when: (row) => row.status === "in-use" && row.attachments.length > 0,
      confirm: t("Unmount the volume in the guest first."),
      run: (row) =>
        call("compute", "DELETE", `/servers/${row.attachments[0]!.server_id}/os-volume_attachments/${row.id}`),
      command: (row) => command("openstack server remove volume", row.attachments[0]?.server_id ?? "SERVER", row.id),
    },
    {
      name: "snapshot",
      label: t("Make a snapshot"),
      rule: "volume:create_snapshot",
      when: (row) => ["available", "in-use"].includes(row.status),
      fields: [{ name: "name", label: t("Name"), required: true }],
      run: (row, values) =>
        call("volume", "POST", "/snapshots", { snapshot: { volume_id: row.id, name: values.name, force: true } }),
      command: (row, values) =>
        command("openstack volume snapshot create --force --volume", row.id, values.name || "NAME"),
    },
    {
      name: "extend",
      label: t("Make it larger"),
      rule: "volume:extend",
      single: true,
      when: (row) => ["available", "in-use"].includes(row.status),
      fieldsOf: (row) => [
        {
          name: "size",
          label: t("New size in GB"),
          kind: "number",
          required: true,
          min: row.size + 1,
          initial: String(row.size * 2),
        },
      ],
      run: (row, values) =>
        call("volume", "POST", `/volumes/${row.id}/action`, { "os-extend": { new_size: Number(values.size) } }),
      command: (row, values) => command("openstack volume set --size", values.size, row.id),
    },
    rename(),
    retype(),
    offer(),
    withdraw(),
    {
      name: "delete",
      label: t("Delete"),
      rule: "volume:delete",
      danger: true,
      when: (row) => !["in-use", "deleting"].includes(row.status),
      confirm: t("The volume and all that is on it are deleted."),
      run: (row) => call("volume", "DELETE", `/volumes/${row.id}`),
      command: (row) => command("openstack volume delete", row.id),
    },
  ],
});

/** A snapshot, and whether its volume boots a server. */
export interface BootSnapshot extends Snapshot {
  boots: boolean;
}

export const snapshots = (): Kind<BootSnapshot> => ({
  path: "snapshots",
  services: ["volume", "compute"],
  title: t("Volume snapshots"),
  one: t("snapshot"),
  rule: "volume:get_all_snapshots",
  load: async () => {
    const [rows, found] = await Promise.all([
      all("volume", "/snapshots/detail", "snapshots"),
      all("volume", "/volumes/detail", "volumes"),
    ]);
    const bootable = new Set(found.filter((row) => row.bootable === "true").map((row) => row.id));
    return rows.map((row) => ({ ...row, boots: bootable.has(row.volume_id) }));
  },
  nameOf: title,
  empty: t("There are no snapshots. Make one of a volume, and a new volume of it later."),
  command: "openstack volume snapshot list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: title,
      cell: (row) => <Name to={["snapshots", row.id]}>{title(row)}</Name>,
    },
    {
      name: "status",
      title: t("Status"),
      narrow: true,
      text: (row) => row.status,
      cell: (row) => <Status value={row.status} />,
    },
    {
      name: "volume",
      title: t("Volume"),
      text: (row) => called(row.volume_id),
      cell: (row) => <a href={link("volumes", row.volume_id)}>{called(row.volume_id)}</a>,
    },
    { name: "size", title: t("Size"), number: true, text: (row) => row.size, cell: (row) => `${row.size} GB` },
    {
      name: "created",
      title: t("Created"),
      text: (row) => row.created_at,
      cell: (row) => <Time at={row.created_at} />,
    },
  ],
  actions: [
    createOf(
      (row) => `snapshot:${row.id}`,
      (row) => row.boots && row.status === "available",
    ),
    {
      name: "volume",
      label: t("Make a volume of it"),
      rule: "volume:create",
      single: true,
      fieldsOf: (row) => [{ name: "name", label: t("Name"), required: true, initial: `${title(row)}-volume` }],
      run: (row, values) => call("volume", "POST", "/volumes", { volume: { name: values.name, snapshot_id: row.id } }),
      command: (row, values) => command("openstack volume create --snapshot", row.id, values.name || "NAME"),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "volume:delete_snapshot",
      danger: true,
      run: (row) => call("volume", "DELETE", `/snapshots/${row.id}`),
      command: (row) => command("openstack volume snapshot delete", row.id),
    },
  ],
});

const subnetFields = (required: boolean): Field[] => [
  {
    name: "cidr",
    label: t("Address range"),
    required,
    initial: "10.64.0.0/24",
    help: t("Within the ranges that the cloud gives projects."),
  },
  { name: "dns", label: t("Name servers"), help: t("Addresses with commas between them.") },
];
const subnetOf = (network: string, values: Values) => ({
  subnet: {
    network_id: network,
    cidr: values.cidr,
    ip_version: values.cidr.includes(":") ? 6 : 4,
    ...(values.dns ? { dns_nameservers: values.dns.split(/[\s,]+/).filter(Boolean) } : {}),
  },
});

/** A network with its subnets. */
interface Ranged extends Network {
  ranges: Subnet[];
}

export const networks = (): Kind<Ranged> => ({
  path: "networks",
  services: ["network", "compute"],
  title: t("Networks"),
  one: t("network"),
  rule: "get_network",
  load: async () => {
    const [rows, subnets] = await Promise.all([
      list("network", "/networks", "networks"),
      list("network", "/subnets", "subnets"),
    ]);
    return rows.map((row) => ({ ...row, ranges: subnets.filter((subnet) => subnet.network_id === row.id) }));
  },
  nameOf: title,
  empty: t("There are no networks yet. Create one, and a router to reach the outside."),
  command: "openstack network list",
  above: () => (
    <>
      <Topology />
      <Reach />
    </>
  ),
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: title,
      cell: (row) => <Name to={["networks", row.id]}>{title(row)}</Name>,
    },
    { name: "status", title: t("Status"), text: (row) => row.status, cell: (row) => <Status value={row.status} /> },
    {
      name: "ranges",
      title: t("Address ranges"),
      narrow: true,
      text: (row) => row.ranges.map((subnet) => subnet.cidr).join(", "),
    },
    {
      name: "kind",
      title: t("Kind"),
      text: (row) =>
        row["router:external"] ? t("external") : row.shared ? t("shared by all projects") : t("of this project"),
    },
    { name: "mtu", title: "MTU", number: true, text: (row) => row.mtu },
  ],
  facts: (row) => [
    [
      t("Kind"),
      row["router:external"] ? t("external") : row.shared ? t("shared by all projects") : t("of this project"),
    ],
    [
      t("Address ranges"),
      row.ranges.map((subnet) => `${subnet.cidr} (${t("gateway")} ${subnet.gateway_ip ?? t("none")})`).join(", "),
    ],
    ["MTU", row.mtu],
    [t("Created"), <Time at={row.created_at} />],
    [t("Description"), row.description],
  ],
  more: (row) => <Ports network={row.id} />,
  create: [
    {
      name: "create",
      label: t("Create a network"),
      rule: "create_network",
      fields: [{ name: "name", label: t("Name"), required: true }, ...subnetFields(true)],
      run: async (_, values) => {
        const { network } = await call("network", "POST", "/networks", { network: { name: values.name } });
        try {
          await call("network", "POST", "/subnets", subnetOf(network.id, values));
        } catch (error) {
          await call("network", "DELETE", `/networks/${network.id}`).catch(() => undefined); // without a range it is of no use
          throw error;
        }
      },
      command: (_, values) =>
        `${command("openstack network create", values.name || "NAME")}\n${command("openstack subnet create --network", values.name || "NAME", ["--subnet-range", values.cidr], values.name || "NAME")}`,
    },
  ],
  actions: [
    {
      name: "rename",
      label: t("Rename"),
      rule: "update_network",
      single: true,
      when: isOwn,
      fieldsOf: (row) => [{ name: "name", label: t("Name"), required: true, initial: row.name }],
      run: (row, values) => call("network", "PUT", `/networks/${row.id}`, { network: { name: values.name } }),
      command: (row, values) => command("openstack network set --name", values.name, row.id),
    },
    limit(isOwn) as Action<Ranged>,
    {
      name: "subnet",
      label: t("Add an address range"),
      rule: "create_subnet",
      single: true,
      when: (row) => isOwn(row) && row.ranges.length === 0,
      fields: subnetFields(true),
      run: (row, values) => call("network", "POST", "/subnets", subnetOf(row.id, values)),
      command: (row, values) =>
        command("openstack subnet create --network", row.id, ["--subnet-range", values.cidr], "NAME"),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "delete_network",
      danger: true,
      when: isOwn,
      confirm: t("This works once nothing uses the network any more."),
      run: (row) => call("network", "DELETE", `/networks/${row.id}`),
      command: (row) => command("openstack network delete", row.id),
    },
  ],
});

function Ports({ network }: { network: string }): VNode {
  const { data, error, reload } = useData(
    () => naming(list("network", `/ports?network_id=${network}`, "ports"), "servers"),
    ["ports", network],
    10,
    ["network", "compute"],
  );
  if (!data) return error ? <Failure error={error} retry={reload} /> : <Waiting />;
  return (
    <>
      <h2>{t("Addresses in use")}</h2>
      <Table
        scope="port-"
        label={t("Addresses in use")}
        rows={data}
        idOf={(row) => row.id}
        nameOf={(row) => row.id}
        empty={<p>{t("Nothing uses this network.")}</p>}
        columns={[
          {
            name: "address",
            title: t("Address"),
            narrow: true,
            text: (row) => row.fixed_ips.map((ip) => ip.ip_address).join(", "),
          },
          {
            name: "device",
            title: t("Used by"),
            narrow: true,
            text: (row) => called(row.device_id),
            cell: (row) =>
              row.device_owner.startsWith("compute:") ? (
                <a href={link("servers", row.device_id, "network")}>
                  {t("server")} {called(row.device_id)}
                </a>
              ) : (
                row.device_owner || t("nothing")
              ),
          },
          { name: "mac", title: "MAC", text: (row) => row.mac_address },
          {
            name: "status",
            title: t("Status"),
            text: (row) => row.status,
            cell: (row) => <Status value={row.status} />,
          },
        ]}
      />
    </>
  );
}

const externals = async (): Promise<Choice[]> =>
  (await list("network", "/networks?router:external=true", "networks")).map((row) => ({
    value: row.id,
    label: title(row),
  }));
const outside = (name: "outside" | "pool"): Field => ({
  name,
  label: t("External network"),
  kind: "select",
  required: true,
  first: true,
  choices: externals,
});
export const routers = (): Kind<Router> => ({
  path: "routers",
  services: ["network", "compute"],
  title: t("Routers"),
  one: t("router"),
  rule: "get_router",
  load: () => list("network", "/routers", "routers"),
  nameOf: title,
  empty: t("There are no routers. A router connects networks with each other and with the outside."),
  command: "openstack router list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: title,
      cell: (row) => <Name to={["routers", row.id]}>{title(row)}</Name>,
    },
    {
      name: "status",
      title: t("Status"),
      narrow: true,
      text: (row) => row.status,
      cell: (row) => <Status value={row.status} />,
    },
    {
      name: "outside",
      title: t("External address"),
      text: (row) => row.external_gateway_info?.external_fixed_ips?.map((ip) => ip.ip_address).join(", ") ?? "",
      cell: (row) => row.external_gateway_info?.external_fixed_ips?.map((ip) => ip.ip_address).join(", ") || t("none"),
    },
  ],
  facts: (row) => [
    [
      t("External address"),
      row.external_gateway_info?.external_fixed_ips?.map((ip) => ip.ip_address).join(", ") || t("none"),
    ],
    [t("Description"), row.description],
  ],
  more: (row, reload) => <RouterPorts router={row} reload={reload} />,
  create: [
    {
      name: "create",
      label: t("Create a router"),
      rule: "create_router",
      fields: [
        { name: "name", label: t("Name"), required: true },
        {
          name: "outside",
          label: t("External gateway"),
          kind: "select",
          first: true,
          choices: async () => [...(await externals()), { value: "", label: t("none") }],
        },
        { name: "subnets", label: t("Networks inside"), kind: "many", choices: ownSubnets },
      ],
      run: async (_, values) => {
        const { router } = await call("network", "POST", "/routers", {
          router: {
            name: values.name,
            ...(values.outside ? { external_gateway_info: { network_id: values.outside } } : {}),
          },
        });
        for (const subnet of values.subnets)
          await call("network", "PUT", `/routers/${router.id}/add_router_interface`, { subnet_id: subnet });
      },
      command: (_, values) =>
        [
          command(
            "openstack router create",
            values.outside && ["--external-gateway", values.outside],
            values.name || "NAME",
          ),
          ...values.subnets.map((subnet: string) =>
            command("openstack router add subnet", values.name || "NAME", subnet),
          ),
        ].join("\n"),
    },
  ],
  actions: [
    {
      name: "add",
      label: t("Connect a network"),
      rule: "add_router_interface",
      single: true,
      fields: [{ name: "subnet", label: t("Network"), kind: "select", required: true, choices: ownSubnets }],
      run: (row, values) =>
        call("network", "PUT", `/routers/${row.id}/add_router_interface`, { subnet_id: values.subnet }),
      command: (row, values) => command("openstack router add subnet", row.id, values.subnet || "SUBNET"),
    },
    {
      name: "gateway",
      label: t("Set the external gateway"),
      rule: "update_router",
      single: true,
      when: (row) => !row.external_gateway_info,
      fields: [outside("outside")],
      run: (row, values) =>
        call("network", "PUT", `/routers/${row.id}`, {
          router: { external_gateway_info: { network_id: values.outside } },
        }),
      command: (row, values) => command("openstack router set --external-gateway", values.outside || "NETWORK", row.id),
    },
    {
      name: "closed",
      label: t("Clear the external gateway"),
      rule: "update_router",
      danger: true,
      when: (row) => !!row.external_gateway_info,
      run: (row) => call("network", "PUT", `/routers/${row.id}`, { router: { external_gateway_info: null } }),
      command: (row) => command("openstack router unset --external-gateway", row.id),
    },
    {
      name: "delete",
      label: t("Delete"),
      rule: "delete_router",
      danger: true,
      confirm: t("This works once no network is connected any more."),
      run: (row) => call("network", "DELETE", `/routers/${row.id}`),
      command: (row) => command("openstack router delete", row.id),
    },
  ],
});

function RouterPorts({ router, reload }: { router: Router; reload: () => void }): VNode {
  const ports = useData(
    () => naming(list("network", `/ports?device_id=${router.id}`, "ports"), "networks"),
    ["router", router.id],
    5,
    ["network"],
  );
  const remove: Action<Port> = {
    name: "remove",
    label: t("Disconnect"),
    rule: "remove_router_interface",
    danger: true,
    run: (row) => call("network", "PUT", `/routers/${router.id}/remove_router_interface`, { port_id: row.id }),
    command: (row) => command("openstack router remove port", router.id, row.id),
  };
  return (
    <>
      <h2>{t("Networks inside")}</h2>
      <Failure error={ports.error} />
      <Table
        scope="port-"
        label={t("Networks inside")}
        rows={(ports.data ?? []).filter((row) => row.device_owner.includes("interface"))}
        idOf={(row) => row.id}
        nameOf={(row) => row.fixed_ips[0]?.ip_address ?? row.id}
        actions={[remove]}
        done={() => {
          ports.reload();
          reload();
        }}
        empty={<p>{t("No network is connected.")}</p>}
        columns={[
          {
            name: "network",
            title: t("Network"),
            narrow: true,
            text: (row) => called(row.network_id),
            cell: (row) => <a href={link("networks", row.network_id)}>{called(row.network_id)}</a>,
          },
          {
            name: "address",
            title: t("Address"),
            narrow: true,
            text: (row) => row.fixed_ips.map((ip) => ip.ip_address).join(", "),
          },
        ]}
      />
    </>
  );
}

/** The servers' ports to which an address leads, in words. */
const forwarded = (row: FloatingIp): string =>
  row.port_forwardings
    .map((item) => `${item.internal_ip_address} (${item.external_port_range.split(":")[0]})`)
    .join(", ");

export const floating = (): Kind<FloatingIp> => ({
  path: "floating-addresses",
  services: ["network", "compute"],
  title: t("Floating addresses"),
  one: t("floating address"),
  rule: "get_floatingip",
  load: () => list("network", "/floatingips", "floatingips"),
  nameOf: (row) => row.floating_ip_address,
  empty: t("There are no floating addresses. One makes a server reachable from the outside."),
  command: "openstack floating ip list",
  columns: [
    {
      name: "address",
      title: t("Address"),
      narrow: true,
      text: (row) => row.floating_ip_address,
      cell: (row) => <Name to={["floating-addresses", row.id]}>{row.floating_ip_address}</Name>,
    },
    {
      name: "fixed",
      title: t("Fixed address"),
      narrow: true,
      text: (row) => row.fixed_ip_address ?? forwarded(row),
      cell: (row) => row.fixed_ip_address || forwarded(row) || <Status value={t("free")} />,
    },
    { name: "status", title: t("Status"), text: (row) => row.status, cell: (row) => <Status value={row.status} /> },
  ],
  facts: (row) => [
    [t("Address"), row.floating_ip_address],
    [t("Fixed address"), row.fixed_ip_address],
    [t("Description"), row.description],
  ],
  more: (row) => (row.port_id ? null : <Forwardings row={row} />),
  create: [
    {
      name: "create",
      label: t("Allocate an address"),
      rule: "create_floatingip",
      fields: [outside("pool")],
      run: (_, values) => call("network", "POST", "/floatingips", { floatingip: { floating_network_id: values.pool } }),
      command: (_, values) => command("openstack floating ip create", values.pool || "POOL"),
    },
  ],
  actions: [
    {
      name: "lead",
      label: t("Associate"),
      rule: "update_floatingip",
      single: true,
      when: (row) => !row.port_id && !row.port_forwardings.length,
      fields: [
        {
          name: "port",
          label: t("Address of a server"),
          kind: "select",
          required: true,
          choices: async () => (await serverAddresses()).map((item) => ({ value: item.port, label: item.label })),
        },
      ],
      run: (row, values) => call("network", "PUT", `/floatingips/${row.id}`, { floatingip: { port_id: values.port } }),
      command: (row, values) => command("openstack floating ip set --port", values.port || "PORT", row.id),
    },
    {
      name: "free",
      label: t("Disassociate"),
      rule: "update_floatingip",
      when: (row) => !!row.port_id,
      run: (row) => call("network", "PUT", `/floatingips/${row.id}`, { floatingip: { port_id: null } }),
      command: (row) => command("openstack floating ip unset --port", row.id),
    },
    forward(),
    {
      name: "delete",
      label: t("Release"),
      rule: "delete_floatingip",
      danger: true,
      confirm: t("The project may get another address next time."),
      run: (row) => call("network", "DELETE", `/floatingips/${row.id}`),
      command: (row) => command("openstack floating ip delete", row.id),
    },
  ],
});

/** A rule of a security group as a sentence. */
export function sentence(rule: SecurityRule, groups: Map<string, string>): string {
  const from = rule.remote_group_id
    ? `${t("servers of the group")} ${groups.get(rule.remote_group_id) ?? short(rule.remote_group_id)}`
    : rule.remote_ip_prefix && !/^(0\.0\.0\.0|::)\/0$/.test(rule.remote_ip_prefix)
      ? rule.remote_ip_prefix
      : t("everywhere");
  const known: Record<string, string> = {
    22: "SSH",
    80: "HTTP",
    443: "HTTPS",
    3389: "RDP",
    53: "DNS",
    5432: "PostgreSQL",
    3306: "MySQL",
  };
  const protocol = rule.protocol?.toUpperCase();
  const low = rule.port_range_min,
    high = rule.port_range_max;
  let what = protocol ? `${t("all")} ${protocol}` : t("everything");
  if (protocol === "ICMP" || protocol === "ICMPV6" || protocol === "IPV6-ICMP") what = t("ping and other ICMP");
  else if (low != null && (low !== 1 || high !== 65535))
    what =
      low === high
        ? `${known[low] ? `${known[low]} (${protocol} ${low})` : `${protocol} ${t("port")} ${low}`}`
        : `${protocol} ${t("ports")} ${low}–${high}`;
  const family = rule.ethertype === "IPv6" ? " (IPv6)" : "";
  return rule.direction === "ingress"
    ? `${t("Lets in")} ${what} ${t("from")} ${from}${family}`
    : `${t("Lets out")} ${what} ${t("to")} ${from}${family}`;
}

const PRESETS = (): Choice[] => [
  { value: "tcp:22:22", label: "SSH (TCP 22)" },
  { value: "tcp:80:80", label: "HTTP (TCP 80)" },
  { value: "tcp:443:443", label: "HTTPS (TCP 443)" },
  { value: "icmp::", label: t("Ping (ICMP)") },
  { value: "tcp:3389:3389", label: "RDP (TCP 3389)" },
  { value: "tcp::", label: t("All TCP") },
  { value: "udp::", label: t("All UDP") },
  { value: "::", label: t("Everything") },
  { value: "own", label: t("Other ports") },
];

export const securityGroups = (): Kind<SecurityGroup> => ({
  path: "security-groups",
  services: ["network", "compute"],
  title: t("Security groups"),
  one: t("security group"),
  rule: "get_security_group",
  load: () => list("network", "/security-groups", "security_groups"),
  nameOf: title,
  empty: t("There are no security groups."),
  command: "openstack security group list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: title,
      cell: (row) => <Name to={["security-groups", row.id]}>{title(row)}</Name>,
    },
    {
      name: "lets",
      title: t("Lets in"),
      narrow: true,
      text: (row) =>
        row.security_group_rules
          .filter((rule) => rule.direction === "ingress")
          .map((rule) => sentence(rule, new Map([[row.id, row.name]])).replace(`${t("Lets in")} `, ""))
          .join("; ") || t("nothing"),
    },
    { name: "description", title: t("Description"), text: (row) => row.description ?? "" },
  ],
  facts: (row) => [[t("Description"), row.description]],
  more: (row, reload) => <Rules group={row} reload={reload} />,
  create: [
    {
      name: "create",
      label: t("Create a security group"),
      rule: "create_security_group",
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "description", label: t("Description") },
      ],
      run: (_, values) =>
        call("network", "POST", "/security-groups", {
          security_group: { name: values.name, description: values.description },
        }),
      command: (_, values) =>
        command(
          "openstack security group create",
          values.description && ["--description", values.description],
          values.name || "NAME",
        ),
    },
  ],
  actions: [
    ruleAction(),
    {
      name: "delete",
      label: t("Delete"),
      rule: "delete_security_group",
      danger: true,
      when: (row) => row.name !== "default",
      run: (row) => call("network", "DELETE", `/security-groups/${row.id}`),
      command: (row) => command("openstack security group delete", row.id),
    },
  ],
});

function ruleAction(): Action<SecurityGroup> {
  const portsOf = (values: Values): [string, string, string] =>
    values.what === "own"
      ? [values.protocol, values.low, values.high || values.low]
      : (values.what.split(":") as [string, string, string]);
  return {
    name: "rule",
    label: t("Add a rule"),
    rule: "create_security_group_rule",
    single: true,
    fields: [
      {
        name: "direction",
        label: t("Direction"),
        kind: "select",
        required: true,
        choices: [
          { value: "ingress", label: t("Lets in") },
          { value: "egress", label: t("Lets out") },
        ],
      },
      { name: "what", label: t("What"), kind: "select", required: true, choices: PRESETS() },
      {
        name: "protocol",
        label: t("Protocol"),
        kind: "select",
        required: true,
        choices: [
          { value: "tcp", label: "TCP" },
          { value: "udp", label: "UDP" },
        ],
        when: (values) => values.what === "own",
      },
      {
        name: "low",
        label: t("First port"),
        kind: "number",
        min: 1,
        max: 65535,
        required: true,
        when: (values) => values.what === "own",
      },
      {
        name: "high",
        label: t("Last port"),
        kind: "number",
        min: 1,
        max: 65535,
        when: (values) => values.what === "own",
      },
      {
        name: "remote",
        label: t("Other end"),
        initial: "0.0.0.0/0",
        required: true,
        help: t("An address range; 0.0.0.0/0 is everywhere."),
      },
    ],
    run: (row, values) => {
      const [protocol, low, high] = portsOf(values);
      const isIpv6 = values.remote.includes(":");
      return call("network", "POST", "/security-group-rules", {
        security_group_rule: {
          security_group_id: row.id,
          direction: values.direction,
          ethertype: isIpv6 ? "IPv6" : "IPv4",
          protocol: protocol === "icmp" && isIpv6 ? "ipv6-icmp" : protocol || null,
          port_range_min: low ? Number(low) : null,
          port_range_max: high ? Number(high) : null,
          remote_ip_prefix: values.remote,
        },
      });
    },
    command: (row, values) => {
      const [protocol, low, high] = portsOf(values);
      return command(
        "openstack security group rule create",
        `--${values.direction}`,
        protocol && ["--protocol", protocol],
        low && ["--dst-port", low === high ? low : `${low}:${high}`],
        ["--remote-ip", values.remote],
        row.id,
      );
    },
  };
}

function Rules({ group, reload }: { group: SecurityGroup; reload: () => void }): VNode {
  const groups = useData(
    async () =>
      new Map((await list("network", "/security-groups", "security_groups")).map((row) => [row.id, row.name])),
    ["groups"],
  );
  const remove: Action<SecurityRule> = {
    name: "remove",
    label: t("Remove"),
    rule: "delete_security_group_rule",
    danger: true,
    run: (row) => call("network", "DELETE", `/security-group-rules/${row.id}`),
    command: (row) => command("openstack security group rule delete", row.id),
  };
  const rows = group.security_group_rules;
  const ingress = rows.filter((rule) => rule.direction === "ingress");
  const wide = ingress.filter(
    (rule) => !rule.remote_group_id && (!rule.remote_ip_prefix || /\/0$/.test(rule.remote_ip_prefix)) && !rule.protocol,
  );
  return (
    <>
      <p>
        {ingress.length
          ? t("Servers of this group are reached as the rules say, and in no other way.")
          : t("Nobody reaches the servers of this group.")}
        {wide.length ? ` ${t("Attention: a rule lets in everything from everywhere.")}` : ""}
      </p>
      <Table
        scope="rule-"
        label={t("Rules")}
        rows={rows}
        idOf={(row) => row.id}
        nameOf={(row) => sentence(row, groups.data ?? new Map())}
        actions={[remove]}
        bulk={[remove]}
        done={reload}
        empty={<p>{t("No rules: nothing passes.")}</p>}
        columns={[
          {
            name: "rule",
            title: t("Rule"),
            narrow: true,
            text: (row) => sentence(row, groups.data ?? new Map()),
          },
          { name: "description", title: t("Description"), text: (row) => row.description ?? "" },
        ]}
      />
    </>
  );
}

export const keys = (): Kind<KeyPair> => ({
  path: "keys",
  services: ["compute"],
  title: t("Keys"),
  one: t("key"),
  rule: "os_compute_api:os-keypairs:index",
  load: async () => (await list("compute", "/os-keypairs", "keypairs")).map((row) => row.keypair),
  show: async (id) => (await call("compute", "GET", `/os-keypairs/${encodeURIComponent(id)}`)).keypair,
  idOf: (row) => row.name,
  empty: t("There are no keys yet. With one you log in to your servers with SSH."),
  command: "openstack keypair list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["keys", row.name]}>{row.name}</Name>,
    },
    {
      name: "fingerprint",
      title: t("Fingerprint"),
      narrow: true,
      text: (row) => row.fingerprint,
      cell: (row) => <code>{row.fingerprint}</code>,
    },
    { name: "type", title: t("Type"), text: (row) => row.type },
  ],
  facts: (row) => [
    [t("Fingerprint"), <code>{row.fingerprint}</code>],
    [t("Type"), row.type],
    [t("Created"), <Time at={row.created_at} />],
    [t("Public key"), <code>{row.public_key}</code>],
  ],
  create: [
    {
      name: "create",
      label: t("Add a key"),
      rule: "os_compute_api:os-keypairs:create",
      fields: [
        { name: "name", label: t("Name"), required: true },
        {
          name: "key",
          label: t("Public key"),
          kind: "area",
          required: true,
          help: t("The content of ~/.ssh/id_ed25519.pub, for example. ssh-keygen -t ed25519 makes one."),
        },
      ],
      run: (_, values) =>
        call("compute", "POST", "/os-keypairs", {
          keypair: { name: values.name, type: "ssh", public_key: values.key.trim() },
        }),
      command: (_, values) =>
        command("openstack keypair create --public-key ~/.ssh/id_ed25519.pub", values.name || "NAME"),
    },
  ],
  actions: [
    {
      name: "delete",
      label: t("Delete"),
      rule: "os_compute_api:os-keypairs:delete",
      danger: true,
      confirm: t("Servers that were made with it keep it."),
      run: (row) => call("compute", "DELETE", `/os-keypairs/${encodeURIComponent(row.name)}`),
      command: (row) => command("openstack keypair delete", row.name),
    },
  ],
});

export const credentials = (): Kind<Credential> => ({
  path: "credentials",
  services: ["identity"],
  title: t("Application credentials"),
  one: t("application credential"),
  rule: "identity:create_application_credential",
  load: () => list("identity", `/users/${shared.session!.user.id}/application_credentials`, "application_credentials"),
  empty: t("There are none. A program logs in with one, instead of your password."),
  command: "openstack application credential list",
  columns: [
    {
      name: "name",
      title: t("Name"),
      narrow: true,
      text: (row) => row.name,
      cell: (row) => <Name to={["credentials", row.id]}>{row.name}</Name>,
    },
    {
      name: "roles",
      title: t("Roles"),
      narrow: true,
      text: (row) => row.roles.map((role) => role.name).join(", "),
    },
    {
      name: "expires",
      title: t("Expires"),
      text: (row) => row.expires_at ?? "",
      cell: (row) => row.expires_at ?? t("never"),
    },
  ],
  facts: (row) => [
    [t("Roles"), row.roles.map((role) => role.name).join(", ")],
    [t("Expires"), row.expires_at ?? t("never")],
    [t("Description"), row.description],
  ],
  create: [
    resulting<object, Credential>({
      name: "create",
      label: t("Create a credential"),
      fields: [
        { name: "name", label: t("Name"), required: true },
        { name: "description", label: t("Description") },
        { name: "days", label: t("Valid for days"), kind: "number", min: 1, help: t("Empty: until it is deleted.") },
      ],
      run: async (_, values) =>
        (
          await call("identity", "POST", `/users/${shared.session!.user.id}/application_credentials`, {
            application_credential: {
              name: values.name,
              description: values.description || null,
              expires_at: values.days
                ? `${new Date(Date.now() + Number(values.days) * 86400000).toISOString().slice(0, 19)}`
                : null,
            },
          })
        ).application_credential,
      command: (_, values) => command("openstack application credential create", values.name || "NAME"),
      result: (value) => (
        <>
          <p>
            ID: <code>{value.id}</code>
          </p>
          <Secret label={t("Secret")} value={value.secret} />
        </>
      ),
    }),
  ],
  actions: [
    {
      name: "delete",
      label: t("Delete"),
      rule: "identity:delete_application_credential",
      danger: true,
      confirm: t("Programs that use it are locked out."),
      run: (row) => call("identity", "DELETE", `/users/${shared.session!.user.id}/application_credentials/${row.id}`),
      command: (row) => command("openstack application credential delete", row.id),
    },
  ],
});

/** The user's own password. The sessions that it has ended ask for the new one. */
export const ownPassword = (): Action<object> => ({
  name: "password",
  label: t("Change the password"),
  rule: "identity:change_password",
  fields: [
    { name: "old", label: t("Present password"), kind: "password", required: true },
    { name: "password", label: t("New password"), kind: "password", required: true },
  ],
  confirm: t("Sessions with the old password end, and the page asks for the new one."),
  run: async (_, values) => {
    const body = { user: { original_password: values.old, password: values.password } };
    const path = `/users/${shared.session!.user.id}/password`;
    try {
      await call("identity", "POST", path, body, { quiet: true });
    } catch (error) {
      // The API says the same of a wrong password as of a session that has ended.
      if ((error as ApiError).status !== 401) throw error;
      const session = await send<object | null>("GET", "session", undefined, { quiet: true });
      if (session) throw new Error(t("The present password is wrong."));
      await call("identity", "POST", path, body);
    }
  },
  command: () => "openstack user password set",
});

// --- quotas

export type Quota = [label: string, used: number, total: number, show: (value: number) => string];

/** What the project uses, and may use. */
export async function quotas(): Promise<Quota[]> {
  const project = owner();
  const plain = String;
  const [compute, volume, network] = await Promise.all([
    call("compute", "GET", "/limits").then((found) => found.limits.absolute),
    shared.session!.services.has("volume")
      ? call("volume", "GET", "/limits").then((found) => found.limits.absolute)
      : null,
    shared.session!.services.has("network")
      ? call("network", "GET", `/quotas/${project}/details.json`).then(
          (found) => found.quota,
          () => null,
        )
      : null,
  ]);
  const rows: Quota[] = [
    [t("Servers"), compute.totalInstancesUsed, compute.maxTotalInstances, plain],
    [t("CPUs"), compute.totalCoresUsed, compute.maxTotalCores, plain],
    [t("Memory"), compute.totalRAMUsed, compute.maxTotalRAMSize, size],
    [t("Server groups"), compute.totalServerGroupsUsed, compute.maxServerGroups, plain],
  ];
  if (volume)
    rows.push(
      [t("Volumes"), volume.totalVolumesUsed, volume.maxTotalVolumes, plain],
      [t("Volume storage"), volume.totalGigabytesUsed, volume.maxTotalVolumeGigabytes, (value) => `${value} GB`],
      [t("Volume snapshots"), volume.totalSnapshotsUsed, volume.maxTotalSnapshots, plain],
    );
  const labels: Record<string, string> = {
    network: t("Networks"),
    subnet: t("Address ranges"),
    port: t("Interfaces"),
    router: t("Routers"),
    floatingip: t("Floating addresses"),
    security_group: t("Security groups"),
    security_group_rule: t("Rules of security groups"),
  };
  for (const [name, label] of Object.entries(labels))
    if (network?.[name]) rows.push([label, network[name].used, network[name].limit, plain]);
  return rows;
}

export function Quotas(): VNode {
  const { data, error, reload } = useData(quotas, ["quotas"], 10);
  return (
    <>
      <header class="head">
        <div>
          <h1 tabIndex={-1}>{t("Quotas")}</h1>
          <p class="note">{t("What the project uses, and may use. An administrator changes the limits.")}</p>
        </div>
      </header>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data &&
        (data.length ? (
          <div class="quotas">
            {data.map(([name, used, total, show]) => (
              <div key={name} class="quota">
                <span>{name}</span>
                <Share
                  used={used}
                  total={total}
                  label={total < 0 ? `${show(used)} (${t("without limit")})` : `${show(used)} / ${show(total)}`}
                />
              </div>
            ))}
          </div>
        ) : (
          <Empty>
            <p>{t("There is nothing to show.")}</p>
          </Empty>
        ))}
    </>
  );
}
