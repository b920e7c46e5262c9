// ioredis: what an application does with Redis, on several connections at once; each value holds what only its connection knows.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import Redis from "ioredis";

const CONNECTIONS = 8;
const options = { host: process.env.HOST, port: Number(process.env.PORT), protocol: Number(process.env.RESP), maxRetriesPerRequest: 0, retryStrategy: null };
const opened = [];
const connect = (more = {}) => {
  const made = new Redis({ ...options, ...more });
  made.on("error", (error) => console.log(`error of a connection: ${error.message}`));
  opened.push(made);
  return made;
};
const nonce = () => randomBytes(12).toString("hex");

const checks = {
  async types(redis, own) {
    const value = nonce();
    assert.equal(await redis.set(own, value), "OK");
    assert.equal(await redis.get(own), value);
    assert.equal(await redis.incrby(`${own}:n`, 7), 7);
    await redis.hset(`${own}:h`, { a: value, b: "2" });
    assert.deepEqual(await redis.hgetall(`${own}:h`), { a: value, b: "2" });
    await redis.rpush(`${own}:l`, value, "x");
    assert.deepEqual(await redis.lrange(`${own}:l`, 0, -1), [value, "x"]);
    await redis.zadd(`${own}:z`, 1.5, value);
    assert.equal(Number(await redis.zscore(`${own}:z`, value)), 1.5);
    assert.equal(await redis.get(`${own}:none`), null);
    assert.deepEqual(await redis.setBuffer(`${own}:b`, Buffer.from([0, 13, 10, 255])), Buffer.from("OK"));
    assert.deepEqual(await redis.getBuffer(`${own}:b`), Buffer.from([0, 13, 10, 255]));
  },
  async pipelines(redis, own) {
    const values = Array.from({ length: 500 }, nonce);
    const written = redis.pipeline();
    values.forEach((value, i) => written.set(`${own}:${i}`, value).get(`${own}:${i}`));
    const replies = await written.exec();
    assert.deepEqual(replies.filter((_, i) => i % 2).map(([, value]) => value), values);
    const all = await Promise.all(values.map((_, i) => redis.get(`${own}:${i}`)));
    assert.deepEqual(all, values);
  },
  async transactions(redis, own) {
    for (let i = 1; i <= 20; i++) {
      const [[, count], [, value]] = await redis.multi().incr(own).get(own).exec();
      assert.equal(count, i);
      assert.equal(value, String(i));
    }
    await redis.multi({ pipeline: false });
    await redis.set(own, "lost");
    await redis.discard();
    assert.equal(await redis.get(own), "20");
  },
  async watching(redis, own) {
    const other = connect();
    await redis.watch(own);
    await other.set(own, "other");
    assert.equal(await redis.multi().set(own, "mine").exec(), null);
    assert.equal(await redis.get(own), "other");
  },
  async blocking(redis, own) {
    const value = nonce();
    const popped = redis.blpop(own, 10);
    await connect().rpush(own, value);
    assert.deepEqual(await popped, [own, value]);
    assert.equal(await redis.blpop(own, 0.05), null);
  },
  async subscriptions(redis, own) {
    const [listener, value] = [connect(), nonce()];
    const heard = new Promise((resolve) => listener.on("message", (channel, message) => resolve([channel, message])));
    await listener.subscribe(own);
    while ((await redis.publish(own, value)) === 0);
    assert.deepEqual(await heard, [own, value]);
  },
  async scanning(redis, own) {
    const keys = Array.from({ length: 200 }, (_, i) => `${own}:${i}`);
    await redis.mset(...keys.flatMap((key) => [key, "x"]));
    const found = new Set();
    for await (const some of redis.scanStream({ match: `${own}:*`, count: 50 })) some.forEach((key) => found.add(key));
    assert.deepEqual([...found].sort(), keys.sort());
  },
  async scripts(redis, own) {
    redis.defineCommand("twice", { numberOfKeys: 1, lua: "return {KEYS[1], ARGV[1] .. ARGV[1]}" });
    const value = nonce();
    assert.deepEqual(await redis.twice(own, value), [own, value + value]);
    assert.deepEqual(await connect().eval("return redis.call('incrby', KEYS[1], ARGV[1])", 1, `${own}:n`, 5), 5);
  },
  async large(redis, own) {
    const value = randomBytes(3_000_000);
    await redis.set(own, value);
    assert.deepEqual(await redis.getBuffer(own), value);
  },
  async streams(redis, own) {
    const value = nonce();
    const reading = connect().xread("BLOCK", 10_000, "STREAMS", own, "0");
    const id = await redis.xadd(own, "*", "field", value);
    const entries = await reading;
    assert.ok(JSON.stringify(entries).includes(value) && JSON.stringify(entries).includes(id));
  },
  async databases(redis, own) {
    const [elsewhere, value] = [connect({ db: 3, connectionName: "elsewhere" }), nonce()];
    await elsewhere.set(own, value);
    await redis.set(own, "here");
    assert.equal(await elsewhere.get(own), value);
    assert.equal(await elsewhere.client("GETNAME"), "elsewhere");
  },
  async errors(redis, own) {
    await redis.set(own, "x");
    await assert.rejects(redis.lpush(own, "y"), /WRONGTYPE/);
    await assert.rejects(redis.call("NOSUCHCOMMAND"), /unknown command/);
    assert.equal(await redis.get(own), "x");
  },
};

console.log(`version ${JSON.parse(readFileSync("node_modules/ioredis/package.json")).version}`);
for (const [name, check] of Object.entries(checks)) {
  try {
    await Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => check(connect(), `${name}:${i}`)));
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${String(error.message).split("\n").join(" ")}`);
  }
  opened.splice(0).forEach((redis) => redis.disconnect());
}
