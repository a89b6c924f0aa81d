// What the page's own paths answer, and fields of the placement API that the page reads.
export interface OperationView {
  action: string | null;
  rule: string | null;
  allowed: string[] | null;
  during: string[] | null;
}

export interface Rights {
  rules: string[];
  operations: Record<string, OperationView>;
  consoles?: string[];
  address: string | null;
}

export interface Version {
  id: string;
  version: string | null;
  since: string | null;
}

export interface Versions {
  version: string;
  daemons: Version[];
}

export interface Configuration {
  problems: string[] | null;
  files: string[];
  at: string;
}

/** A well-known image of a distributor. `image`: its usual name here. `is_allowed`: it needs no mirror. */
export interface CloudImage {
  name: string;
  architecture: string;
  image: string;
  site: string;
  path: string;
  disk_format: string;
  properties: Record<string, string>;
  is_allowed: boolean;
}

export interface PlacementReply {
  resource_providers: { uuid: string; name: string }[];
  provider_summaries: Record<string, { resources: Record<string, { capacity: number; used: number }> }>;
}
