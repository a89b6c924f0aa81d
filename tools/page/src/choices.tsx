import { list } from "./api";
import type { Choice } from "./ui";

export { Secret } from "./servers";

export const freeServers = async (): Promise<Choice[]> =>
  (await list("compute", "/servers/detail?limit=1000", "servers")).filter((server) => ["ACTIVE", "SHUTOFF", "PAUSED"].includes(server.status)).map((server) => ({ value: server.id, label: server.name }));
