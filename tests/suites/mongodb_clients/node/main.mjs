// Node's driver: what an application does with MongoDB, many tasks at once. What a task reads must hold the nonce that it alone wrote,
// so an answer that reached another client is noticed.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { MongoBulkWriteError, MongoClient, MongoServerError } from "mongodb";

const { HOST, PORT, OPTIONS } = process.env;
const BALANCED = OPTIONS.includes("loadBalanced=true");
const TASKS = 8;
const nonce = () => randomBytes(12).toString("hex");
const range = (length) => Array.from({ length }, (_, i) => i);
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

// What the driver tells of all clients of this program.
const heard = { poolsCleared: 0, serversUnknown: 0, heartbeats: 0, sessions: new Map() };

async function connected(pool, work) {
  const client = new MongoClient(`mongodb://${HOST}:${PORT}/?${OPTIONS}`, {
    maxPoolSize: pool, heartbeatFrequencyMS: 500, serverSelectionTimeoutMS: 20_000, monitorCommands: true,
  });
  let leaving = false;
  client.on("connectionPoolCleared", () => heard.poolsCleared++);
  client.on("serverDescriptionChanged", ({ previousDescription, newDescription }) => {
    if (!leaving && newDescription.type === "Unknown" && previousDescription.type !== "Unknown") heard.serversUnknown++;
  });
  client.on("serverHeartbeatSucceeded", () => heard.heartbeats++);
  client.on("commandStarted", ({ command, commandName }) => {
    if (!command.lsid || !Object.values(command).includes("sessions")) return;
    const id = command.lsid.id.toString("hex");
    heard.sessions.set(id, [...(heard.sessions.get(id) ?? []), commandName]);
  });
  try {
    await client.connect();
    return await work(client);
  } finally {
    leaving = true;
    await client.close();
  }
}

const checks = {
  async crud({ app }, own) {
    const [things, value, other] = [app.collection("crud"), nonce(), nonce()];
    assert.equal((await things.insertOne({ _id: own, value, n: 1 })).insertedId, own);
    assert.deepEqual(await things.findOne({ _id: own }), { _id: own, value, n: 1 });
    assert.equal((await things.updateOne({ value }, { $inc: { n: 6 } })).modifiedCount, 1);
    assert.deepEqual(await things.findOneAndUpdate({ value }, { $set: { seen: true } }, { returnDocument: "after" }), { _id: own, value, n: 7, seen: true });
    assert.equal((await things.replaceOne({ _id: other }, { value }, { upsert: true })).upsertedId, other);
    assert.equal(await things.countDocuments({ value }), 2);
    assert.deepEqual(await things.distinct("value", { _id: own }), [value]);
    assert.equal((await things.deleteMany({ value })).deletedCount, 2);
    assert.equal(await things.findOne({ value }), null);
  },
  async bulk({ app }, own) {
    const [things, values] = [app.collection("bulk"), range(100).map(nonce)];
    for (const ordered of [true, false]) {
      const made = await things.bulkWrite(values.map((_id, n) => ({ insertOne: { document: { _id, own, n } } })), { ordered });
      assert.equal(made.insertedCount, 100);
      const other = nonce();
      const changed = await things.bulkWrite([
        ...values.slice(0, 20).map((_id) => ({ updateOne: { filter: { _id }, update: { $set: { n: -1 } } } })),
        { replaceOne: { filter: { _id: other }, replacement: { own }, upsert: true } },
        ...values.slice(20, 50).map((_id) => ({ deleteOne: { filter: { _id } } })),
      ], { ordered });
      assert.deepEqual([changed.modifiedCount, changed.deletedCount, Object.values(changed.upsertedIds)], [20, 30, [other]]);
      const fresh = range(3).map(nonce);
      const mixed = [fresh[0], values[0], fresh[1], values[1], fresh[2]].map((_id) => ({ insertOne: { document: { _id, own } } }));
      await assert.rejects(things.bulkWrite(mixed, { ordered }), (error) => {
        assert.ok(error instanceof MongoBulkWriteError);
        const found = [error.writeErrors].flat().map((one) => [one.index, one.code, one.err.op._id]);
        assert.deepEqual(found, [[1, 11000, values[0]], [3, 11000, values[1]]].slice(0, ordered ? 1 : 2));
        return true;
      });
      const left = (await things.find({ own }).toArray()).map(({ _id }) => _id);
      assert.deepEqual(left.sort(), [...values.slice(0, 20), ...values.slice(50), other, ...fresh.slice(0, ordered ? 1 : 3)].sort());
      await things.deleteMany({ own });
    }
  },
  async cursors() {
    for (const pool of [1, 10, 100]) {
      // A driver in front of a balancer keeps a connection for each open cursor.
      const count = BALANCED ? pool : 200;
      await connected(pool, async (client) => {
        let [waiting, open] = [count, null];
        const opened = new Promise((resolve) => (open = resolve));
        await all(range(count).map(async (number) => {
          const [things, value] = [client.db("app").collection(`cursors${number}`), nonce()];
          const written = things.insertMany(range(12).map((n) => ({ value, n })));
          const cursor = things.find({ value }, { batchSize: 3 }).sort({ n: 1 });
          const found = [await written.then(() => cursor.next()).finally(() => --waiting === 0 && open())];
          await opened;
          for await (const one of cursor) found.push(one);
          assert.deepEqual(found.map((one) => [one.value, one.n]), range(12).map((n) => [value, n]));
        }));
      });
    }
  },
  async aggregations({ app }, own) {
    const [things, value] = [app.collection("aggregations"), nonce()];
    await things.insertMany(range(120).map((n) => ({ value, own, n, parity: n % 2 })));
    for (const _ of range(3)) {
      const found = await things.aggregate([{ $match: { own } }, { $sort: { n: -1 } }, { $skip: 20 }], { batchSize: 6 }).toArray();
      assert.deepEqual(found.map((one) => [one.value, one.n]), range(100).reverse().map((n) => [value, n]));
      const summed = await things.aggregate([{ $match: { own } }, { $group: { _id: "$value", sum: { $sum: "$n" } } }]).toArray();
      assert.deepEqual(summed, [{ _id: value, sum: sum(range(120)) }]);
    }
  },
  async sessions({ app, client }, own) {
    const [things, value] = [app.collection("sessions"), nonce()];
    const [session, other] = [client.startSession({ causalConsistency: true }), client.startSession()];
    await things.insertOne({ _id: own, value }, { session });
    for (const n of range(10)) {
      await things.updateOne({ _id: own }, { $set: { n } }, { session });
      assert.deepEqual(await things.findOne({ _id: own }, { session }), { _id: own, value, n });
      assert.deepEqual(await things.findOne({ value }, { session: other }), { _id: own, value, n });
    }
    await things.insertMany(range(40).map((n) => ({ own, value, n })), { session });
    const found = await things.find({ own }, { session, batchSize: 3 }).toArray();
    assert.deepEqual(found.map((one) => one.value), Array(40).fill(value));
    const kinds = [session, other].map((one) => heard.sessions.get(one.id.id.toString("hex")));
    assert.deepEqual(kinds.map((some) => some.filter((kind) => kind === "find").length), [11, 10]);
    assert.ok(kinds[0].includes("getMore"));
    await Promise.all([session.endSession(), other.endSession()]);
  },
  async large({ app }, own) {
    const [things, value] = [app.collection("large"), nonce()];
    const text = value.repeat(700_000).slice(0, [4, 6, 8, 10, 12, 15][own.at(-1)] * 1_000_000);
    await things.insertOne({ _id: own, text });
    assert.ok((await things.findOne({ _id: own })).text === text);
    const part = text.slice(0, 4_000_000);
    await things.insertMany(range(2).map((n) => ({ own, n, text: part })));
    assert.deepEqual((await things.find({ own }).toArray()).map((one) => one.text === part), [true, true]);
  },
  async errors({ app }, own) {
    const things = app.collection("errors");
    for (const _ of range(5)) {
      const value = nonce();
      await things.insertOne({ _id: value, own });
      await assert.rejects(things.insertOne({ _id: value }), (error) => error instanceof MongoServerError && error.code === 11000);
      const holds = (error) => error instanceof MongoServerError && error.message.includes(value);
      await assert.rejects(app.command({ [`no${value}`]: 1 }), (error) => holds(error) && error.code === 59);
      await assert.rejects(app.command({ find: "errors", filter: { [`$no${value}`]: 1 } }), holds);
      assert.deepEqual(await things.findOne({ _id: value }), { _id: value, own });
    }
  },
  async hundreds() {
    await all(range(3).map((which) => connected(100, async (client) => {
      const things = client.db("app").collection("hundreds");
      await all(range(100).map(async (i) => {
        const task = which * 100 + i;
        for (const n of range(3)) {
          const value = nonce();
          await things.insertOne({ _id: value, task });
          assert.deepEqual(await things.findOne({ _id: value }), { _id: value, task });
          assert.deepEqual(await things.findOneAndUpdate({ _id: value }, { $set: { n } }, { returnDocument: "after" }), { _id: value, task, n });
        }
      }));
    })));
    assert.equal(await connected(1, (client) => client.db("app").collection("hundreds").countDocuments({})), 900);
  },
  async monitoring({ app }) {
    const [things, before] = [app.collection("monitoring"), heard.heartbeats];
    for (const _ of range(2)) {
      const value = nonce();
      await things.insertOne({ _id: value });
      assert.deepEqual(await things.findOne({ _id: value }, { readPreference: "secondaryPreferred" }), { _id: value });
      await sleep(2000);
    }
    // Nobody watches a balancer.
    assert.equal(heard.heartbeats > before + 2, !BALANCED);
  },
};

// Waits for all, and throws the first error.
async function all(promises) {
  const failed = (await Promise.allSettled(promises)).find(({ status }) => status === "rejected");
  if (failed) throw failed.reason;
}

console.log(`version ${JSON.parse(readFileSync("node_modules/mongodb/package.json")).version}`);
for (const [name, check] of Object.entries(checks)) {
  try {
    if (check.length === 0) await check();
    else await all(range(name === "large" ? 6 : TASKS).map((n) => connected(4, (client) => check({ app: client.db("app"), client }, `${name}:${n}`))));
    assert.deepEqual([heard.poolsCleared, heard.serversUnknown], [0, 0]);
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${error.name}: ${String(error.message).split(/\s+/).join(" ").slice(0, 300)}`);
  }
}
