// node-redis: what an application does with Redis, on several connections at once; each value holds what only its connection knows.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createClient, WatchError } from "redis";

const CONNECTIONS = 8;
const opened = [];
const connect = async (more = {}) => {
  const made = createClient({
    socket: { host: process.env.HOST, port: Number(process.env.PORT), reconnectStrategy: false },
    RESP: Number(process.env.RESP),
    ...more,
  });
  made.on("error", (error) => console.log(`error of a connection: ${error.message}`));
  opened.push(made);
  await made.connect();
  return made;
};
const nonce = () => randomBytes(12).toString("hex");

const checks = {
  async types(redis, own) {
    const value = nonce();
    assert.equal(await redis.set(own, value), "OK");
    assert.equal(await redis.get(own), value);
    assert.equal(await redis.incrBy(`${own}:n`, 7), 7);
    await redis.hSet(`${own}:h`, { a: value, b: "2" });
    assert.deepEqual({ ...(await redis.hGetAll(`${own}:h`)) }, { a: value, b: "2" });
    await redis.rPush(`${own}:l`, [value, "x"]);
    assert.deepEqual(await redis.lRange(`${own}:l`, 0, -1), [value, "x"]);
    await redis.zAdd(`${own}:z`, { score: 1.5, value });
    assert.equal(await redis.zScore(`${own}:z`, value), 1.5);
    assert.equal(await redis.get(`${own}:none`), null);
  },
  async pipelines(redis, own) {
    const values = Array.from({ length: 500 }, nonce);
    await Promise.all(values.map((value, i) => redis.set(`${own}:${i}`, value)));
    assert.deepEqual(await Promise.all(values.map((_, i) => redis.get(`${own}:${i}`))), values);
  },
  async transactions(redis, own) {
    for (let i = 1; i <= 20; i++) {
      assert.deepEqual(await redis.multi().incr(own).get(own).exec(), [i, String(i)]);
    }
  },
  async watching(redis, own) {
    const other = await connect();
    await redis.watch(own);
    await other.set(own, "other");
    await assert.rejects(redis.multi().set(own, "mine").exec(), WatchError);
    assert.equal(await redis.get(own), "other");
  },
  async blocking(redis, own) {
    const value = nonce();
    const popped = redis.blPop(own, 10);
    await (await connect()).rPush(own, value);
    assert.deepEqual({ ...(await popped) }, { key: own, element: value });
    assert.equal(await redis.blPop(own, 0.05), null);
  },
  async subscriptions(redis, own) {
    const [listener, value] = [await connect(), nonce()];
    let resolve;
    const heard = new Promise((done) => (resolve = done));
    await listener.subscribe(own, (message, channel) => resolve([channel, message]));
    while ((await redis.publish(own, value)) === 0);
    assert.deepEqual(await heard, [own, value]);
    await listener.unsubscribe(own);
  },
  async scanning(redis, own) {
    const keys = Array.from({ length: 200 }, (_, i) => `${own}:${i}`);
    await redis.mSet(keys.map((key) => [key, "x"]));
    const found = new Set();
    for await (const some of redis.scanIterator({ MATCH: `${own}:*`, COUNT: 50 })) [some].flat().forEach((key) => found.add(key));
    assert.deepEqual([...found].sort(), keys.sort());
  },
  async scripts(redis, own) {
    const value = nonce();
    const sha = await redis.scriptLoad("return {KEYS[1], ARGV[1] .. ARGV[1]}");
    const other = await connect();
    assert.deepEqual(await other.evalSha(sha, { keys: [own], arguments: [value] }), [own, value + value]);
  },
  async large(redis, own) {
    const value = "x".repeat(3_000_000);
    await redis.set(own, value);
    assert.equal(await redis.get(own), value);
  },
  async streams(redis, own) {
    const value = nonce();
    const reading = (await connect()).xRead({ key: own, id: "0" }, { BLOCK: 10_000 });
    const id = await redis.xAdd(own, "*", { field: value });
    const entries = JSON.stringify(await reading);
    assert.ok(entries.includes(value) && entries.includes(id));
  },
  async databases(redis, own) {
    const [elsewhere, value] = [await connect({ database: 3, name: "elsewhere" }), nonce()];
    await elsewhere.set(own, value);
    await redis.set(own, "here");
    assert.equal(await elsewhere.get(own), value);
    assert.equal(await elsewhere.clientGetName(), "elsewhere");
  },
  async errors(redis, own) {
    await redis.set(own, "x");
    await assert.rejects(redis.lPush(own, "y"), /WRONGTYPE/);
    await assert.rejects(redis.sendCommand(["NOSUCHCOMMAND"]), /unknown command/);
    assert.equal(await redis.get(own), "x");
  },
};

console.log(`version ${JSON.parse(readFileSync("node_modules/redis/package.json")).version}`);
for (const [name, check] of Object.entries(checks)) {
  try {
    await Promise.all(Array.from({ length: CONNECTIONS }, async (_, i) => check(await connect(), `${name}:${i}`)));
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${String(error.message).split("\n").join(" ")}`);
  }
  opened.splice(0).forEach((redis) => redis.destroy());
}
