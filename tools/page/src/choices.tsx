import { list } from "./api";
import type { Choice } from "./ui";

export { Secret } from "./servers";

const servers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers"))
    .filter((server) => !server.status.includes("DELETED"))
    .map((server) => ({ value: server.id, label: server.name }));

export const names = { servers };

export const freeServers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers"))
    .filter((server) => ["ACTIVE", "SHUTOFF", "PAUSED"].includes(server.status))
    .map((server) => ({ value: server.id, label: server.name }));
