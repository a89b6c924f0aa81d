// Keys of one-time codes that the browser makes: TOTP of RFC 6238, with SHA-1, six digits and steps of 30 seconds.

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const BYTES = 20;
const STEP = 30;

/** Bytes as base32 of RFC 4648. Their number is a multiple of 5, so there is nothing to fill up. */
function base32(data: Uint8Array): string {
  const bits = [...data].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return bits.match(/.{5}/g)!.reduce((text, five) => text + ALPHABET[Number.parseInt(five, 2)]!, "");
}

function fromBase32(text: string): Uint8Array<ArrayBuffer> {
  const bits = [...text].map((letter) => ALPHABET.indexOf(letter).toString(2).padStart(5, "0")).join("");
  return Uint8Array.from(bits.match(/.{8}/g)!, (eight) => Number.parseInt(eight, 2));
}

export const makeSecret = (): string => base32(crypto.getRandomValues(new Uint8Array(BYTES)));

/** Whether this browser can check codes: it does so in pages of TLS, or of its own machine. */
export const checksCodes = (): boolean => !!globalThis.crypto?.subtle;

/** The code of a key at a time in seconds since 1970. */
export async function codeAt(secret: string, seconds: number): Promise<string> {
  const use = { name: "HMAC", hash: "SHA-1" };
  const key = await crypto.subtle.importKey("raw", fromBase32(secret), use, false, ["sign"]);
  const step = new DataView(new ArrayBuffer(8));
  step.setBigUint64(0, BigInt(Math.floor(seconds / STEP)));
  const digest = new DataView(await crypto.subtle.sign("HMAC", key, step.buffer));
  const number = digest.getUint32(digest.getUint8(19) & 15) & 0x7fffffff;
  return String(number % 1000000).padStart(6, "0");
}

/** Whether a code is the present one. The clocks may differ by a step. */
export async function isRight(secret: string, code: string, seconds: number): Promise<boolean> {
  const near = await Promise.all([-STEP, 0, STEP].map((shift) => codeAt(secret, seconds + shift)));
  return near.includes(code.replace(/\s/g, ""));
}

/** The address by which an app takes the key. `host`: what the app calls the cloud. */
export const appAddress = (secret: string, user: string, host: string): string => {
  const issuer = encodeURIComponent(host);
  return `otpauth://totp/${issuer}:${encodeURIComponent(user)}?secret=${secret}&issuer=${issuer}`;
};
