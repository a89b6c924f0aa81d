// A key pair that the browser makes. Its private key is written as OpenSSH's own file, and never leaves the browser.

const TYPE = "ssh-ed25519";
/** Bytes that the parts of a private key are filled up to a multiple of, and letters of a line of the file. */
const BLOCK = 8;
const LINE = 70;

export interface KeyFile {
  public: string; // a line of authorized_keys
  private: string; // the content of ~/.ssh/id_ed25519
}

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const base64 = (data: Uint8Array): string => btoa(String.fromCharCode(...data));
const fromUrl = (text: string): Uint8Array =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));

function joined(...parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
function number(value: number): Uint8Array {
  const found = new Uint8Array(4);
  new DataView(found.buffer).setUint32(0, value);
  return found;
}
const text = (data: Uint8Array | string): Uint8Array => {
  const found = typeof data === "string" ? bytes(data) : data;
  return joined(number(found.length), found);
};

/** The files of a key. `seed`, `point`: 32 bytes of its private and its public half. `check`: any number. */
export function keyFile(seed: Uint8Array, point: Uint8Array, comment: string, check: number): KeyFile {
  const open = joined(text(TYPE), text(point));
  const parts = joined(number(check), number(check), open, text(joined(seed, point)), text(comment));
  const fill = Uint8Array.from({ length: (BLOCK - (parts.length % BLOCK)) % BLOCK }, (_, at) => at + 1);
  const whole = joined(
    bytes("openssh-key-v1\0"),
    ...[text("none"), text("none"), text(""), number(1)],
    ...[text(open), text(joined(parts, fill))],
  );
  const lines = base64(whole).match(new RegExp(`.{1,${LINE}}`, "g"))!;
  const name = "OPENSSH PRIVATE KEY";
  return {
    public: `${TYPE} ${base64(open)} ${comment}`,
    private: [`-----BEGIN ${name}-----`, ...lines, `-----END ${name}-----`, ""].join("\n"),
  };
}

const generated = async (): Promise<CryptoKeyPair> =>
  (await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"])) as CryptoKeyPair;

/** Whether this browser makes keys: it does so in pages of TLS, or of its own machine. Older browsers do not. */
export async function makesKeys(): Promise<boolean> {
  try {
    return !!(await generated());
  } catch {
    return false;
  }
}

export async function makeKey(comment: string): Promise<KeyFile> {
  const { d, x } = await crypto.subtle.exportKey("jwk", (await generated()).privateKey);
  const [check] = crypto.getRandomValues(new Uint32Array(1));
  return keyFile(fromUrl(d!), fromUrl(x!), comment, check!);
}

/** A name that nothing has yet, beginning with another one. Its letters are those that keys can have. */
export function freeName(wanted: string, taken: string[]): string {
  const begin = wanted.replace(/[^\w.-]+/g, "-").slice(0, 200);
  for (let number = 1; ; number++) {
    const name = number === 1 ? begin : `${begin}-${number}`;
    if (!taken.includes(name)) return name;
  }
}
