// Fields of the image API that the page reads.
export interface Image {
  id: string;
  name: string | null;
  status: string;
  visibility: string;
  owner: string | null;
  disk_format: string | null;
  size: number | null;
  min_disk: number;
  min_ram: number;
  protected: boolean;
  created_at: string;
  os_hash_algo: string | null;
  os_hash_value: string | null;
  os_admin_user?: string;
  image_type?: string;
  os_type?: string;
  os_glance_failed_import?: string; // the stores in which an import has failed
}

/** A reply is a list, or an image by itself. */
export interface ImageReply extends Image {
  images: Image[];
  "import-methods": { value: string[] };
}
