import { list } from "./api";
import { t } from "./messages";
import type { Choice } from "./ui";

export { Secret } from "./servers";

const servers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers"))
    .filter((server) => !server.status.includes("DELETED"))
    .map((server) => ({ value: server.id, label: server.name }));

const keys = async (): Promise<Choice[]> => [
  { value: "", label: t("None: nobody can log in with SSH") },
  ...(await list("compute", "/os-keypairs", "keypairs")).map(({ keypair: { name } }) => ({ value: name, label: name })),
];

export const names = { keys, servers };

export const freeServers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers"))
    .filter((server) => ["ACTIVE", "SHUTOFF", "PAUSED"].includes(server.status))
    .map((server) => ({ value: server.id, label: server.name }));
