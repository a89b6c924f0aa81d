/** Return the commands that their client does not take, each with its reason. */
export function refusals(lines: string[]): [string, string][];
