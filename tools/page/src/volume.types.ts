// Fields of the volume API that the page reads.
export interface Volume {
  id: string;
  name: string | null;
  description: string | null;
  status: string;
  size: number;
  bootable: "true" | "false";
  volume_type: string | null;
  created_at: string;
  attachments: { server_id: string }[];
}

export interface Snapshot {
  id: string;
  name: string | null;
  status: string;
  size: number;
  volume_id: string;
  created_at: string;
}

export interface VolumeType {
  id: string;
  name: string;
  description: string | null;
  is_public: boolean;
  extra_specs?: Record<string, string>;
}

/** An offer of a volume. Its key is in the reply to its creation alone. */
export interface Transfer {
  id: string;
  volume_id: string;
  auth_key?: string;
}

export interface VolumeReply {
  volume_types: VolumeType[];
  volume_type: VolumeType;
  volume_type_access: { project_id: string }[];
  transfers: Transfer[];
  transfer: Transfer;
  volumes: Volume[];
  volume: Volume;
  snapshots: Snapshot[];
  limits: {
    absolute: {
      maxTotalVolumes: number;
      totalVolumesUsed: number;
      maxTotalVolumeGigabytes: number;
      totalGigabytesUsed: number;
      maxTotalSnapshots: number;
      totalSnapshotsUsed: number;
    };
  };
}
