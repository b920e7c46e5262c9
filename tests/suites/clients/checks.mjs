// What the programs in JavaScript share: they run the checks that CHECKS names (all without it) and say how each ended.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';

export const CONNECTIONS = Number(process.env.CONNECTIONS ?? 8);
export const nonce = () => randomUUID();
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export const many = (work) => Promise.all(Array.from({ length: CONNECTIONS }, (_, n) => work(n)));

// The certificate is for `host`; `ca` signed it, and `otherCa` did not.
export const TLS = { host: process.env.TLS_HOST, ca: readFileSync(process.env.TLS_CA), otherCa: readFileSync(process.env.TLS_OTHER_CA) };

const LIMIT_MS = 60_000;

export async function run(name, version, checks) {
  console.log(`version ${version}`);
  const wanted = process.env.CHECKS ? process.env.CHECKS.split(',') : Object.keys(checks);
  let failed = 0;
  for (const [check, work] of Object.entries(checks)) {
    if (!wanted.includes(check)) continue;
    try {
      await Promise.race([work(), sleep(LIMIT_MS).then(() => { throw new Error(`not done within ${LIMIT_MS} ms`); })]);
      console.log(`ok ${check}`);
    } catch (error) {
      failed++;
      console.log(`failed ${check}: ${String(error?.message ?? error).split('\n').join(' ')}`);
    }
  }
  process.exit(failed ? 1 : 0);
}
