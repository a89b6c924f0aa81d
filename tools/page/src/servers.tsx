// Servers: the list, and what can be done with one.
import type { VNode } from "preact";
import { useMemo } from "preact/hooks";
import { all, call, list, pages } from "./api";
import type { ComputeReply, PlainAction, Server, ServerAction } from "./compute.types";
import type { Image } from "./image.types";
import { t } from "./messages";
import { latestShare, Sparkline } from "./sparks";
import { accepts, has, link, may, useData, useParameter } from "./state";
import { type Column, compare, type Filter, Table } from "./table";
import {
  type Action,
  type Choice,
  Command,
  command,
  Empty,
  Failure,
  Head,
  Name,
  resulting,
  Status,
  size,
  Time,
  Waiting,
} from "./ui";

export const taskOf = (server: Server): string | null => server["OS-EXT-STS:task_state"];
export const hostOf = (server: Server): string => server["OS-EXT-SRV-ATTR:host"] ?? "";
export const addressesOf = (server: Server): string[] =>
  Object.values(server.addresses)
    .flat()
    .map((address) => address.addr);
const tagsOf = (server: Server): string[] => server.tags ?? [];
const act = (server: Server, action: ServerAction) => call("compute", "POST", `/servers/${server.id}/action`, action);

// --- names of other things

/** Images that a server can have: kernels and ramdisks belong to others. */
export const isBootable = (image: Image): boolean =>
  image.status === "active" && !["aki", "ari"].includes(image.disk_format ?? "");
export const bootable = async (): Promise<Image[]> =>
  (await all("image", "/images?status=active", "images")).filter(isBootable);
const marked = (label: string, isPresent: boolean): string => (isPresent ? `${label} (${t("present")})` : label);
export const names = {
  flavors: async (present = ""): Promise<Choice[]> =>
    (await list("compute", "/flavors/detail?sort_key=memory_mb", "flavors")).map((flavor) => ({
      value: flavor.id,
      label: marked(
        `${flavor.name} – ${flavor.vcpus} CPU, ${size(flavor.ram)}, ${t("disk")} ${flavor.disk} GB`,
        flavor.name === present,
      ),
    })),
  images: async (present = ""): Promise<Choice[]> =>
    (await bootable()).map((image) => ({
      value: image.id,
      label: marked(image.name || image.id, image.id === present),
    })),
  networks: async (): Promise<Choice[]> =>
    (await list("network", "/networks", "networks"))
      .filter((network) => !network["router:external"])
      .map((network) => ({ value: network.id, label: network.name || network.id })),
  groups: async (): Promise<Choice[]> =>
    (await list("network", "/security-groups", "security_groups")).map((group) => ({
      value: group.name,
      label: group.name,
    })),
  hosts: async (): Promise<Choice[]> =>
    (await list("compute", "/os-services?binary=nova-compute", "services"))
      .filter((service) => service.state === "up" && service.status === "enabled")
      .map((service) => ({ value: service.host, label: service.host })),
  volumes: async (): Promise<Choice[]> =>
    (await list("volume", "/volumes/detail?status=available", "volumes")).map((volume) => ({
      value: volume.id,
      label: `${volume.name || volume.id} – ${volume.size} GB`,
    })),
};
const anyHost = async (): Promise<Choice[]> => [
  { value: "", label: t("The scheduler chooses") },
  ...(await names.hosts()),
];

// --- actions

const simple = (
  name: PlainAction,
  kind: string,
  label: string,
  rule: string,
  verb: string,
  more: Partial<Action<Server>> = {},
): Action<Server> => ({
  name,
  label,
  rule,
  when: (server) => accepts(kind, server),
  run: (server) => act(server, { [name]: null } as ServerAction),
  command: (server) => command("openstack server", verb, server.name && uniqueName(server)),
  ...more,
});
const uniqueName = (server: Server): string => server.id;
const status =
  (...wanted: string[]) =>
  (server: Server): boolean =>
    wanted.includes(server.status);

/** Seconds that a guest may take to turn off, before its start is refused. */
const TURNING_OFF = 90;

/** Start a server that is being stopped, once it is off. */
async function startAgain({ id }: Server): Promise<unknown> {
  const end = Date.now() + TURNING_OFF * 1000;
  for (;;) {
    const { server } = await call("compute", "GET", `/servers/${id}`);
    if (!taskOf(server) || Date.now() > end) return act(server, { "os-start": null });
    await new Promise((next) => setTimeout(next, 1000));
  }
}

export const serverActions = (): Action<Server>[] => [
  simple("os-start", "start", t("Start"), "os_compute_api:servers:start", "start"),
  simple(
    "confirmResize",
    "confirmResize",
    t("Confirm the resize"),
    "os_compute_api:servers:confirm_resize",
    "resize confirm",
    { when: status("VERIFY_RESIZE") },
  ),
  simple(
    "revertResize",
    "revertResize",
    t("Revert the resize"),
    "os_compute_api:servers:revert_resize",
    "resize revert",
    { when: status("VERIFY_RESIZE") },
  ),
  simple("os-stop", "stop", t("Stop"), "os_compute_api:servers:stop", "stop", {
    done: t("Stopping"),
    undo: startAgain,
    when: (server) => accepts("stop", server) && server.status !== "ERROR",
    confirm: t("The guest is asked to shut down, and is turned off if it does not."),
  }),
  {
    name: "reboot",
    label: t("Reboot"),
    rule: "os_compute_api:servers:reboot",
    when: (server) => accepts("reboot", server),
    fields: [
      {
        name: "type",
        label: t("How"),
        kind: "select",
        required: true,
        choices: [
          { value: "SOFT", label: t("Soft: the guest restarts itself") },
          { value: "HARD", label: t("Hard: power off and on") },
        ],
      },
    ],
    run: (server, values) => act(server, { reboot: { type: values.type as "SOFT" | "HARD" } }),
    command: (server, values) => command("openstack server reboot", values.type === "HARD" && "--hard", server.id),
  },
  simple("unpause", "unpause", t("Unpause"), "os_compute_api:os-pause-server:unpause", "unpause"),
  simple("resume", "resume", t("Resume"), "os_compute_api:os-suspend-server:resume", "resume"),
  simple("unrescue", "unrescue", t("Leave rescue"), "os_compute_api:os-unrescue", "unrescue"),
  simple("unshelve", "unshelve", t("Unshelve"), "os_compute_api:os-shelve:unshelve", "unshelve", {
    when: status("SHELVED", "SHELVED_OFFLOADED"),
  }),
  simple("restore", "restore", t("Restore"), "os_compute_api:os-deferred-delete:restore", "restore", {
    when: status("SOFT_DELETED"),
  }),
  {
    name: "snapshot",
    label: t("Make a snapshot"),
    rule: "os_compute_api:servers:create_image",
    single: true,
    when: (server) => accepts("createImage", server),
    fieldsOf: (server) => [
      {
        name: "name",
        label: t("Name of the image"),
        required: true,
        initial: `${server.name}-${new Date().toISOString().slice(0, 10)}`,
      },
    ],
    run: (server, values) => act(server, { createImage: { name: values.name } }),
    command: (server, values) => command("openstack server image create --name", values.name, server.id),
  },
  {
    name: "resize",
    label: t("Resize"),
    rule: "os_compute_api:servers:resize",
    when: (server) => accepts("resize", server),
    fieldsOf: (server) => [
      {
        name: "flavor",
        label: t("New flavor"),
        kind: "select",
        required: true,
        choices: () => names.flavors(server.flavor.original_name),
        help: t("The server restarts on a host with room. Confirm or revert it afterwards."),
      },
    ],
    run: (server, values) => act(server, { resize: { flavorRef: values.flavor } }),
    command: (server, values) => command("openstack server resize --flavor", values.flavor || "FLAVOR", server.id),
  },
  simple("pause", "pause", t("Pause"), "os_compute_api:os-pause-server:pause", "pause"),
  simple("suspend", "suspend", t("Suspend"), "os_compute_api:os-suspend-server:suspend", "suspend"),
  simple("shelve", "shelve", t("Shelve"), "os_compute_api:os-shelve:shelve", "shelve", {
    when: (server) => accepts("shelve", server) && !server.status.startsWith("SHELVED"),
    confirm: t("The server is stored as an image and leaves its host. Its addresses and volumes stay."),
  }),
  resulting<Server, ComputeReply | null>({
    name: "rescue",
    label: t("Rescue"),
    rule: "os_compute_api:os-rescue",
    when: (server) => accepts("rescue", server),
    confirm: t("The server boots from its image with its own disk attached as the second one."),
    run: (server) => act(server, { rescue: null }),
    command: (server) => command("openstack server rescue", server.id),
    result: (value) => <Secret label={t("Password of the rescue system")} value={value?.adminPass} />,
  }),
  resulting<Server, ComputeReply | null>({
    name: "rebuild",
    label: t("Rebuild"),
    rule: "os_compute_api:servers:rebuild",
    danger: true,
    when: (server) => accepts("rebuild", server),
    confirm: t("The disk is replaced by a new one from the image. What is on it is lost."),
    fieldsOf: (server) => [
      {
        name: "image",
        label: t("Image"),
        kind: "select",
        required: true,
        choices: () => names.images(server.image ? server.image.id : ""),
      },
    ],
    run: (server, values) => act(server, { rebuild: { imageRef: values.image } }),
    command: (server, values) => command("openstack server rebuild --image", values.image || "IMAGE", server.id),
    result: (value) => <Secret label={t("Password of the server")} value={value?.server?.adminPass} />,
  }),
  {
    name: "rename",
    label: t("Rename"),
    rule: "os_compute_api:servers:update",
    single: true,
    fieldsOf: (server) => [
      { name: "name", label: t("Name"), required: true, initial: server.name },
      { name: "description", label: t("Description"), initial: server.description ?? "" },
    ],
    run: (server, values) =>
      call("compute", "PUT", `/servers/${server.id}`, {
        server: { name: values.name, description: values.description || null },
      }),
    done: t("Renamed"),
    undo: (server) =>
      call("compute", "PUT", `/servers/${server.id}`, {
        server: { name: server.name, description: server.description ?? null },
      }),
    command: (server, values) =>
      command(
        "openstack server set --name",
        values.name,
        values.description && ["--description", values.description],
        server.id,
      ),
  },
  simple("lock", "lock", t("Lock"), "os_compute_api:os-lock-server:lock", "lock", {
    done: t("Locked"),
    undo: (server) => act(server, { unlock: null }),
    when: (server) => !server.locked,
    confirm: t("A locked server refuses changes until it is unlocked."),
  }),
  simple("unlock", "unlock", t("Unlock"), "os_compute_api:os-lock-server:unlock", "unlock", {
    when: (server) => server.locked,
  }),
  {
    name: "live",
    label: t("Live-migrate"),
    rule: "os_compute_api:os-migrate-server:migrate_live",
    when: (server) => accepts("live-migration", server),
    fields: [{ name: "host", label: t("To host"), kind: "select", choices: anyHost }],
    run: (server, values) => act(server, { "os-migrateLive": { host: values.host || null, block_migration: "auto" } }),
    command: (server, values) =>
      command("openstack server migrate --live-migration", values.host && ["--host", values.host], server.id),
  },
  {
    name: "migrate",
    label: t("Migrate (with a stop)"),
    rule: "os_compute_api:os-migrate-server:migrate",
    when: (server) => accepts("migrate", server),
    fields: [{ name: "host", label: t("To host"), kind: "select", choices: anyHost }],
    run: (server, values) => act(server, { migrate: values.host ? { host: values.host } : null }),
    command: (server, values) => command("openstack server migrate", values.host && ["--host", values.host], server.id),
  },
  {
    name: "evacuate",
    label: t("Evacuate"),
    rule: "os_compute_api:os-evacuate",
    danger: true,
    when: (server) => accepts("evacuate", server) && !!hostOf(server) && server.host_status === "DOWN",
    confirm: t("The server gets a new disk on another host. Do this only if its host is really down."),
    run: (server) => act(server, { evacuate: {} }),
    command: (server) => command("openstack server evacuate", server.id),
  },
  {
    name: "reset",
    label: t("Reset the state"),
    rule: "os_compute_api:os-admin-actions:reset_state",
    fields: [
      {
        name: "state",
        label: t("State"),
        kind: "select",
        required: true,
        choices: [
          { value: "active", label: "active" },
          { value: "error", label: "error" },
        ],
      },
    ],
    confirm: t("This changes what the cloud believes, and nothing of the guest."),
    run: (server, values) => act(server, { "os-resetState": { state: values.state as "active" | "error" } }),
    command: (server, values) => command("openstack server set --state", values.state, server.id),
  },
  {
    name: "delete",
    label: t("Delete"),
    rule: "os_compute_api:servers:delete",
    danger: true,
    confirm: t("The server and its own disks are deleted. Volumes stay, unless they were to be deleted with it."),
    run: (server) => call("compute", "DELETE", `/servers/${server.id}`),
    command: (server) => command("openstack server delete", server.id),
  },
];

export function Secret({ label, value }: { label: string; value: string | undefined }): VNode | null {
  if (!value) return null;
  return (
    <div>
      <p>
        {label}. {t("It is shown only now.")}
      </p>
      <pre class="secret" tabIndex={0}>
        {value}
      </pre>
    </div>
  );
}

// --- the list

interface Found {
  servers: Map<string, Server>;
  complete: boolean;
  asked: string;
}

export const statusOf = (server: Server): VNode => {
  const task = taskOf(server);
  return (
    <>
      <Status value={server.status} busy={!!task} />
      {task && <small class="task">{t(task.replaceAll("_", " "))}</small>}
    </>
  );
};

const listColumns = (everyone: boolean, projects: Map<string, string>): Column<Server>[] => [
  {
    name: "name",
    title: t("Name"),
    narrow: true,
    text: (server) => server.name,
    cell: (server) => (
      <>
        <Name to={["servers", server.id]}>{server.name}</Name>
        {server.locked && <small class="tag">{t("locked")}</small>}
      </>
    ),
  },
  {
    name: "status",
    title: t("Status"),
    narrow: true,
    text: (server) => server.status,
    cell: (server) => (
      <>
        {statusOf(server)}
        {server.fault && (
          <small class="reason" title={server.fault.message}>
            {server.fault.message}
          </small>
        )}
      </>
    ),
  },
  {
    name: "address",
    title: t("Addresses"),
    text: (server) => addressesOf(server).join(" "),
    cell: (server) => addressesOf(server).length > 0 && <span class="lines">{addressesOf(server).join("\n")}</span>,
  },
  { name: "flavor", title: t("Flavor"), text: (server) => server.flavor.original_name },
  ...(may("os_compute_api:os-usage-history:server")
    ? [
        {
          name: "use",
          title: t("CPU load"),
          text: (server: Server) => latestShare(server.id) ?? "",
          cell: ({ id, status }: Server) =>
            status === "ACTIVE" && (
              <Sparkline
                id={id}
                load={async () =>
                  (await call("compute", "GET", `/servers/${id}/os-usage-history?span=hour`)).usage_history
                }
              />
            ),
        },
      ]
    : []),
  ...(may("os_compute_api:os-hypervisors:list-detail")
    ? [
        {
          name: "host",
          title: t("Host"),
          text: hostOf,
          cell: (server: Server) => hostOf(server) && <a href={link("hosts", hostOf(server))}>{hostOf(server)}</a>,
        },
      ]
    : []),
  ...(everyone
    ? [
        {
          name: "project",
          title: t("Project"),
          text: (server: Server) => projects.get(server.tenant_id) ?? server.tenant_id.slice(0, 8),
        },
      ]
    : []),
  {
    name: "created",
    title: t("Created"),
    text: (server) => server.created,
    cell: (server) => <Time at={server.created} />,
  },
  ...extraColumns(),
];

/** Columns that a user may choose. */
const extraColumns = (): Column<Server>[] =>
  [
    { name: "cpus", title: t("CPUs"), number: true, text: ({ flavor }: Server) => flavor.vcpus },
    {
      name: "memory",
      title: t("Memory"),
      number: true,
      text: ({ flavor }: Server) => flavor.ram,
      cell: ({ flavor }: Server) => size(flavor.ram),
    },
    { name: "tags", title: t("Tags"), text: (server: Server) => tagsOf(server).join(" ") },
    { name: "key", title: t("Key"), text: (server: Server) => server.key_name ?? "" },
    { name: "zone", title: t("Zone"), text: (server: Server) => server["OS-EXT-AZ:availability_zone"] ?? "" },
    {
      name: "updated",
      title: t("Changed"),
      text: (server: Server) => server.updated,
      cell: (server: Server) => <Time at={server.updated} />,
    },
    { name: "description", title: t("Description"), text: (server: Server) => server.description ?? "" },
    { name: "id", title: "ID", text: (server: Server) => server.id },
  ].map((column) => ({ ...column, extra: true }));

const filtersOf = (): Filter<Server>[] => [
  { name: "status", title: t("Status"), of: (server) => server.status },
  { name: "flavor", title: t("Flavor"), of: (server) => server.flavor.original_name, words: String },
  { name: "on", title: t("Host"), of: hostOf, words: String },
  { name: "tag", title: t("Tag"), of: tagsOf, words: String },
];

const belowName = (server: Server): string => [...addressesOf(server), server.flavor.original_name].join(" · ");

const BULK = [
  "os-start",
  "os-stop",
  "reboot",
  "shelve",
  "unshelve",
  "lock",
  "unlock",
  "delete",
  "live",
  "confirmResize",
];

export function Servers(): VNode {
  const [everyone, setEveryone] = useParameter("all");
  const [host] = useParameter("host");
  const query = `${everyone ? "&all_tenants=1" : ""}${host ? `&all_tenants=1&host=${encodeURIComponent(host)}` : ""}`;
  const { data, error, reload } = useData<Found>(
    async (previous) => {
      const asked = new Date(Date.now() - 5000).toISOString();
      if (previous?.complete) {
        const since = await list(
          "compute",
          `/servers/detail?changes-since=${encodeURIComponent(previous.asked)}${query}`,
          "servers",
        );
        if (!since.length) return { ...previous, asked };
        const servers = new Map(previous.servers);
        for (const server of since) {
          if (server.status === "DELETED") servers.delete(server.id);
          else servers.set(server.id, server);
        }
        return { servers, complete: true, asked };
      }
      const servers = new Map<string, Server>(previous?.servers ?? []);
      const steps = pages("compute", `/servers/detail?sort_key=created_at${query}`, "servers", 60);
      let count = 0;
      for await (const page of steps) {
        for (const server of page) servers.set(server.id, server);
        count += 1;
        if (count === 1 && page.length === 60 && previous === null) return { servers, complete: false, asked };
      }
      return { servers, complete: true, asked };
    },
    ["servers", query],
    (found) => (!found.complete ? 0.01 : [...found.servers.values()].some(taskOf) ? 1.5 : 5),
    (change) => change.own || !!everyone || !!host,
  );
  const projects = useData(
    async () =>
      may("identity:list_projects")
        ? new Map((await list("identity", "/projects", "projects")).map((row) => [row.id, row.name]))
        : new Map<string, string>(),
    ["project-names", everyone],
  );
  const actions = serverActions();
  const rows = useMemo(
    () =>
      [...(data?.servers.values() ?? [])].sort((left, right) =>
        left.created === right.created ? compare(left.name, right.name) : left.created < right.created ? 1 : -1,
      ),
    [data?.servers],
  );
  const columns = useMemo(
    () => listColumns(!!everyone || !!host, projects.data ?? new Map()),
    [everyone, host, projects.data],
  );
  return (
    <>
      <Head title={host ? `${t("Servers")}: ${host}` : t("Servers")}>
        {may("os_compute_api:servers:detail:get_all_tenants") && !host && (
          <label class="check">
            <input
              type="checkbox"
              checked={!!everyone}
              onChange={(event) => setEveryone(event.currentTarget.checked ? "1" : "")}
            />{" "}
            {t("All projects")}
          </label>
        )}
        {may("os_compute_api:servers:create") && (
          <a class="button primary" href={link("servers", "new")}>
            {t("Create a server")}
          </a>
        )}
      </Head>
      <Failure error={error} retry={reload} />
      {!data && !error && <Waiting />}
      {data && (
        <Table
          label={t("Servers")}
          rows={rows}
          columns={columns}
          below={belowName}
          idOf={(server) => server.id}
          nameOf={(server) => server.name}
          actions={actions}
          bulk={actions.filter((action) => BULK.includes(action.name))}
          done={reload}
          more={!data.complete}
          filters={filtersOf()}
          chooser="servers"
          icon="servers"
          empty={
            <>
              <p>{t("There are no servers in this project yet.")}</p>
              {may("os_compute_api:servers:create") && (
                <ol class="steps">
                  <li>
                    <a href={link("keys")}>{t("Add a key, to log in with SSH.")}</a>
                  </li>
                  {has("network") && (
                    <li>
                      <a href={link("networks")}>
                        {t("Look at the networks: a server needs one, and a router to reach the outside.")}
                      </a>
                    </li>
                  )}
                  <li>{t("Create the server. Its page says how to log in.")}</li>
                </ol>
              )}
              {may("os_compute_api:servers:create") && (
                <a class="button primary" href={link("servers", "new")}>
                  {t("Create the first server")}
                </a>
              )}
              <Command text="openstack server list" />
            </>
          }
        />
      )}
    </>
  );
}

export const noService = (name: string): VNode | null =>
  has(name) ? null : (
    <Empty>
      <p>{t("This cloud has no such service.")}</p>
    </Empty>
  );
