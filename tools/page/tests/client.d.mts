/** Return the commands that their client does not take, each with its reason. */
export function refusals(lines: string[]): Promise<[string, string][]>;
/** Return the public lines, without comments, that another reader of OpenSSH's files finds in private keys. */
export function readKeys(files: string[]): Promise<string[]>;
