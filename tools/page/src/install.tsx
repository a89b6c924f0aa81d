// A server that installs a system from an ISO image onto a volume: what comes next, and its end.
import type { VNode } from "preact";
import { call, list } from "./api";
import type { Server } from "./compute.types";
import { createAgain } from "./draft";
import { t } from "./messages";
import { link, useData } from "./state";
import { type Action, ActionButtons, command } from "./ui";

/** Milliseconds between two looks for the volume of a deleted server, and how many there are. */
const LOOK = 1000,
  LOOKS = 120;

/** Delete the server, wait for its volume, and go to the form of a server that boots from the volume. */
export const finish = (volume: string, wait = LOOK): Action<Server> => ({
  name: "finish",
  label: t("Finish the installation"),
  rule: ["os_compute_api:servers:delete", "os_compute_api:servers:create"],
  danger: true,
  confirm: t("The server is deleted, and the ISO with it. The volume stays, and a new server boots from it."),
  run: async (server) => {
    await call("volume", "POST", `/volumes/${volume}/action`, { "os-set_bootable": { bootable: true } });
    await call("compute", "DELETE", `/servers/${server.id}`);
    for (let look = 0; look < LOOKS; look++) {
      if ((await call("volume", "GET", `/volumes/${volume}`)).volume.status === "available") {
        createAgain(server, `volume:${volume}`);
        location.hash = link("servers", "new");
        return;
      }
      await new Promise((done) => setTimeout(done, wait));
    }
    throw new Error("The volume is not available yet. Create a server from it later, in the list of volumes.");
  },
  command: (server) =>
    [command("openstack volume set --bootable", volume), command("openstack server delete --wait", server.id)].join(
      "\n",
    ),
});

/** What to do next with a server that has an ISO image and a volume. */
export function Installation({ server }: { server: Server }): VNode | null {
  const image = server.image ? server.image.id : "";
  const { data } = useData(
    async () => {
      if (!image || (await call("image", "GET", `/images/${image}`)).disk_format !== "iso") return [];
      return list("compute", `/servers/${server.id}/os-volume_attachments`, "volumeAttachments");
    },
    ["installation", server.id, image, server.status],
    0,
  );
  const volume = data?.[0]?.volumeId;
  if (!volume) return null;
  return (
    <section class="next" aria-label={t("Installation")}>
      <b>{t("This server installs a system from its ISO.")}</b>
      <ol>
        <li>
          <a href={link("servers", server.id, "console")}>{t("Open the console")}</a>
          {t(", and install onto the disk that is empty. It is the volume")}{" "}
          <a href={link("volumes", volume)}>{volume.slice(0, 8)}</a>.
        </li>
        <li>{t("When the installer wants to restart, let it. Some installers go on after a restart.")}</li>
        <li>
          {t("Once the system is complete, finish the installation. The ISO cannot be removed from this server.")}
        </li>
      </ol>
      <ActionButtons actions={[finish(volume)]} row={server} nameOf={(row) => row.name} />
    </section>
  );
}
