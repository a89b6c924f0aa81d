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

export interface VolumeReply {
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
