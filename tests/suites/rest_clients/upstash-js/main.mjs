// @upstash/redis over HTTP beside ioredis at the same Redis: each step is done by both, on keys of their own, and must come to the same.
// Reads URL, TOKEN and REDIS (a port) from its environment.

import { isDeepStrictEqual } from 'node:util';
import { createRequire } from 'node:module';
import { Redis as Rest } from '@upstash/redis';
import { Redis as Direct } from 'ioredis';

const { URL: url, TOKEN: token, REDIS } = process.env;
const settings = { url, token, automaticDeserialization: false, enableTelemetry: false, retry: { retries: 0 } };
const rest = new Rest(settings);
const plain = new Rest({ ...settings, enableAutoPipelining: false });
const parsing = new Rest({ ...settings, automaticDeserialization: true });
const direct = new Direct({ port: Number(REDIS) });
const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i)).toString('latin1');

// What is asked of both, in groups that share keys: `r` is the one over HTTP, `d` the direct one, `k` makes a key.
const GROUPS = {
  strings: [
    [(r, k) => r.set(k('a'), 'b'), (d, k) => d.set(k('a'), 'b')],
    [(r, k) => r.get(k('a')), (d, k) => d.get(k('a'))],
    [(r, k) => r.get(k('none')), (d, k) => d.get(k('none'))],
    [(r, k) => r.set(k('a'), 'c', { nx: true }), (d, k) => d.set(k('a'), 'c', 'NX')],
    [(r, k) => r.set(k('a'), 'c', { xx: true, get: true }), (d, k) => d.set(k('a'), 'c', 'XX', 'GET')],
    [(r, k) => r.set(k('u'), 'žluťoučký 🐎 "\\\n\0'), (d, k) => d.set(k('u'), 'žluťoučký 🐎 "\\\n\0')],
    [(r, k) => r.get(k('u')), (d, k) => d.get(k('u'))],
    [(r, k) => r.set(k('bytes'), bytes), (d, k) => d.set(k('bytes'), bytes)],
    [(r, k) => r.get(k('bytes')), (d, k) => d.get(k('bytes'))],
    [(r, k) => r.set(k('empty'), ''), (d, k) => d.set(k('empty'), '')],
    [(r, k) => r.get(k('empty')), (d, k) => d.get(k('empty'))],
    [(r, k) => r.mset({ [k('m1')]: '1', [k('m2')]: '2' }), (d, k) => d.mset(k('m1'), '1', k('m2'), '2')],
    [(r, k) => r.mget(k('m1'), k('m2'), k('none')), (d, k) => d.mget(k('m1'), k('m2'), k('none'))],
    [(r, k) => r.incr(k('n')), (d, k) => d.incr(k('n'))],
    [(r, k) => r.incrby(k('n'), 41), (d, k) => d.incrby(k('n'), 41)],
    [(r, k) => r.decr(k('n')), (d, k) => d.decr(k('n'))],
    [(r, k) => r.incrbyfloat(k('f'), 1.5), async (d, k) => d.incrbyfloat(k('f'), 1.5), String],
    [(r, k) => r.append(k('a'), 'xyz'), (d, k) => d.append(k('a'), 'xyz')],
    [(r, k) => r.getrange(k('a'), 1, -2), (d, k) => d.getrange(k('a'), 1, -2)],
    [(r, k) => r.setrange(k('a'), 1, 'Q'), (d, k) => d.setrange(k('a'), 1, 'Q')],
    [(r, k) => r.strlen(k('a')), (d, k) => d.strlen(k('a'))],
    [(r, k) => r.getset(k('a'), 'new'), (d, k) => d.getset(k('a'), 'new')],
    [(r, k) => r.setex(k('t'), 100, 'v'), (d, k) => d.setex(k('t'), 100, 'v')],
    [(r, k) => r.ttl(k('t')), (d, k) => d.ttl(k('t'))],
    [(r, k) => r.persist(k('t')), (d, k) => d.persist(k('t'))],
    [(r, k) => r.getdel(k('t')), (d, k) => d.getdel(k('t'))],
    [(r, k) => r.exists(k('a'), k('t')), (d, k) => d.exists(k('a'), k('t'))],
    [(r, k) => r.type(k('a')), (d, k) => d.type(k('a'))],
    [(r, k) => r.expire(k('a'), 50), (d, k) => d.expire(k('a'), 50)],
    [(r, k) => r.copy(k('a'), k('a2')), (d, k) => d.copy(k('a'), k('a2')), Number],
    [(r, k) => r.del(k('a'), k('a2')), (d, k) => d.del(k('a'), k('a2'))],
    [(r) => r.ping(), (d) => d.ping()],
    [(r) => r.echo('hello'), (d) => d.echo('hello')],
  ],
  hashes: [
    [(r, k) => r.hset(k('h'), { a: '1', b: '2', c: 'x y' }), (d, k) => d.hset(k('h'), { a: '1', b: '2', c: 'x y' })],
    [(r, k) => r.hget(k('h'), 'c'), (d, k) => d.hget(k('h'), 'c')],
    [(r, k) => r.hgetall(k('h')), (d, k) => d.hgetall(k('h')), (all) => (Array.isArray(all) ? Object.fromEntries(pairs(all)) : all)],
    [(r, k) => r.hgetall(k('none')), (d, k) => d.hgetall(k('none')), (all) => (Array.isArray(all) ? Object.fromEntries(pairs(all)) : (all ?? {}))],
    [(r, k) => r.hmget(k('h'), 'a', 'z'), (d, k) => d.hmget(k('h'), 'a', 'z'), (all) => (Array.isArray(all) ? { a: all[0], z: all[1] } : all)],
    [(r, k) => r.hincrby(k('h'), 'a', 5), (d, k) => d.hincrby(k('h'), 'a', 5)],
    [(r, k) => r.hkeys(k('h')), (d, k) => d.hkeys(k('h'))],
    [(r, k) => r.hvals(k('h')), (d, k) => d.hvals(k('h'))],
    [(r, k) => r.hlen(k('h')), (d, k) => d.hlen(k('h'))],
    [(r, k) => r.hexists(k('h'), 'a'), (d, k) => d.hexists(k('h'), 'a')],
    [(r, k) => r.hdel(k('h'), 'a', 'b'), (d, k) => d.hdel(k('h'), 'a', 'b')],
    [(r, k) => r.hscan(k('h'), 0), (d, k) => d.hscan(k('h'), 0)],
  ],
  lists: [
    [(r, k) => r.rpush(k('l'), 'a', 'b', 'c'), (d, k) => d.rpush(k('l'), 'a', 'b', 'c')],
    [(r, k) => r.lpush(k('l'), 'z'), (d, k) => d.lpush(k('l'), 'z')],
    [(r, k) => r.lrange(k('l'), 0, -1), (d, k) => d.lrange(k('l'), 0, -1)],
    [(r, k) => r.lindex(k('l'), 1), (d, k) => d.lindex(k('l'), 1)],
    [(r, k) => r.linsert(k('l'), 'before', 'b', 'x'), (d, k) => d.linsert(k('l'), 'BEFORE', 'b', 'x')],
    [(r, k) => r.lmove(k('l'), k('l2'), 'left', 'right'), (d, k) => d.lmove(k('l'), k('l2'), 'LEFT', 'RIGHT')],
    [(r, k) => r.lpos(k('l'), 'c'), (d, k) => d.lpos(k('l'), 'c')],
    [(r, k) => r.lset(k('l'), 0, 'q'), (d, k) => d.lset(k('l'), 0, 'q')],
    [(r, k) => r.ltrim(k('l'), 0, 1), (d, k) => d.ltrim(k('l'), 0, 1)],
    [(r, k) => r.llen(k('l')), (d, k) => d.llen(k('l'))],
    [(r, k) => r.lpop(k('l')), (d, k) => d.lpop(k('l'))],
    [(r, k) => r.rpop(k('l'), 2), (d, k) => d.rpop(k('l'), 2)],
    [(r, k) => r.rpop(k('none')), (d, k) => d.rpop(k('none'))],
  ],
  sets: [
    [(r, k) => r.sadd(k('s'), 'a', 'b', 'c'), (d, k) => d.sadd(k('s'), 'a', 'b', 'c')],
    [(r, k) => r.sadd(k('s2'), 'b', 'c', 'd'), (d, k) => d.sadd(k('s2'), 'b', 'c', 'd')],
    [(r, k) => r.smembers(k('s')), (d, k) => d.smembers(k('s')), (all) => [...all].sort()],
    [(r, k) => r.sismember(k('s'), 'a'), (d, k) => d.sismember(k('s'), 'a')],
    [(r, k) => r.smismember(k('s'), ['a', 'q']), (d, k) => d.smismember(k('s'), 'a', 'q')],
    [(r, k) => r.sinter(k('s'), k('s2')), (d, k) => d.sinter(k('s'), k('s2')), (all) => [...all].sort()],
    [(r, k) => r.sunionstore(k('s3'), k('s'), k('s2')), (d, k) => d.sunionstore(k('s3'), k('s'), k('s2'))],
    [(r, k) => r.sdiff(k('s'), k('s2')), (d, k) => d.sdiff(k('s'), k('s2'))],
    [(r, k) => r.smove(k('s'), k('s2'), 'a'), (d, k) => d.smove(k('s'), k('s2'), 'a')],
    [(r, k) => r.srem(k('s'), 'b', 'q'), (d, k) => d.srem(k('s'), 'b', 'q')],
    [(r, k) => r.scard(k('s')), (d, k) => d.scard(k('s'))],
    [(r, k) => r.spop(k('s')), (d, k) => d.spop(k('s'))],
  ],
  'sorted sets': [
    [(r, k) => r.zadd(k('z'), { score: 1, member: 'a' }, { score: 2.5, member: 'b' }, { score: -3, member: 'c' }), (d, k) => d.zadd(k('z'), 1, 'a', 2.5, 'b', -3, 'c')],
    [(r, k) => r.zrange(k('z'), 0, -1), (d, k) => d.zrange(k('z'), 0, -1)],
    [(r, k) => r.zrange(k('z'), 0, -1, { withScores: true }), (d, k) => d.zrange(k('z'), 0, -1, 'WITHSCORES'), (all) => all.map(String)],
    [(r, k) => r.zrange(k('z'), '-inf', '(2.5', { byScore: true, rev: false, offset: 0, count: 5 }), (d, k) => d.zrange(k('z'), '-inf', '(2.5', 'BYSCORE', 'LIMIT', 0, 5)],
    [(r, k) => r.zscore(k('z'), 'b'), (d, k) => d.zscore(k('z'), 'b'), String],
    [(r, k) => r.zmscore(k('z'), ['a', 'q']), (d, k) => d.zmscore(k('z'), 'a', 'q'), (all) => all.map(String)],
    [(r, k) => r.zincrby(k('z'), 3, 'a'), (d, k) => d.zincrby(k('z'), 3, 'a'), String],
    [(r, k) => r.zrank(k('z'), 'a'), (d, k) => d.zrank(k('z'), 'a')],
    [(r, k) => r.zrevrank(k('z'), 'a'), (d, k) => d.zrevrank(k('z'), 'a')],
    [(r, k) => r.zcount(k('z'), 0, 10), (d, k) => d.zcount(k('z'), 0, 10)],
    [(r, k) => r.zcard(k('z')), (d, k) => d.zcard(k('z'))],
    [(r, k) => r.zpopmin(k('z')), (d, k) => d.zpopmin(k('z')), (all) => all.map(String)],
    [(r, k) => r.zrem(k('z'), 'a', 'q'), (d, k) => d.zrem(k('z'), 'a', 'q')],
    [(r, k) => r.zunionstore(k('z2'), 1, k('z'), { weights: [2] }), (d, k) => d.zunionstore(k('z2'), 1, k('z'), 'WEIGHTS', 2)],
  ],
  streams: [
    [(r, k) => r.xadd(k('x'), '1-1', { a: '1', b: 'two' }), (d, k) => d.xadd(k('x'), '1-1', 'a', '1', 'b', 'two')],
    [(r, k) => r.xadd(k('x'), '2-1', { c: '3' }), (d, k) => d.xadd(k('x'), '2-1', 'c', '3')],
    [(r, k) => r.xlen(k('x')), (d, k) => d.xlen(k('x'))],
    [(r, k) => r.xrange(k('x'), '-', '+'), (d, k) => d.xrange(k('x'), '-', '+'), entries],
    [(r, k) => r.xread(k('x'), '0'), (d, k) => d.xread('STREAMS', k('x'), '0'), (all) => all[0][1]],
    [(r, k) => r.xgroup(k('x'), { type: 'CREATE', group: 'g', id: '0' }), (d, k) => d.xgroup('CREATE', k('x'), 'g', '0')],
    [(r, k) => r.xreadgroup('g', 'me', k('x'), '>', { count: 1 }), (d, k) => d.xreadgroup('GROUP', 'g', 'me', 'COUNT', 1, 'STREAMS', k('x'), '>'), (all) => all[0][1]],
    [(r, k) => r.xack(k('x'), 'g', '1-1'), (d, k) => d.xack(k('x'), 'g', '1-1')],
    [(r, k) => r.xdel(k('x'), '1-1'), (d, k) => d.xdel(k('x'), '1-1')],
    [(r, k) => r.xtrim(k('x'), { strategy: 'MAXLEN', threshold: 0, exactness: '=' }), (d, k) => d.xtrim(k('x'), 'MAXLEN', '=', 0)],
  ],
  'geo and bits': [
    [(r, k) => r.geoadd(k('g'), { longitude: 13.361389, latitude: 38.115556, member: 'Palermo' }, { longitude: 15.087269, latitude: 37.502669, member: 'Catania' }),
      (d, k) => d.geoadd(k('g'), 13.361389, 38.115556, 'Palermo', 15.087269, 37.502669, 'Catania')],
    [(r, k) => r.geodist(k('g'), 'Palermo', 'Catania', 'KM'), (d, k) => d.geodist(k('g'), 'Palermo', 'Catania', 'KM'), String],
    [(r, k) => r.geohash(k('g'), 'Palermo', 'Catania'), (d, k) => d.geohash(k('g'), 'Palermo', 'Catania')],
    [(r, k) => r.setbit(k('b'), 7, 1), (d, k) => d.setbit(k('b'), 7, 1)],
    [(r, k) => r.getbit(k('b'), 7), (d, k) => d.getbit(k('b'), 7)],
    [(r, k) => r.bitcount(k('b')), (d, k) => d.bitcount(k('b'))],
    [(r, k) => r.bitpos(k('b'), 1), (d, k) => d.bitpos(k('b'), 1)],
    [(r, k) => r.bitop('not', k('b2'), k('b')), (d, k) => d.bitop('NOT', k('b2'), k('b'))],
    [(r, k) => r.pfadd(k('hll'), 'a', 'b', 'a'), (d, k) => d.pfadd(k('hll'), 'a', 'b', 'a')],
    [(r, k) => r.pfcount(k('hll')), (d, k) => d.pfcount(k('hll'))],
  ],
  scripts: [
    [(r, k) => r.eval('return {KEYS[1], ARGV[1], 7, false, {1, {2}}}', [k('a')], ['b']), (d, k) => d.eval('return {KEYS[1], ARGV[1], 7, false, {1, {2}}}', 1, k('a'), 'b'), (all) => all.slice(1)],
    [(r) => r.scriptLoad('return 42'), (d) => d.script('LOAD', 'return 42')],
    [(r) => r.evalsha('1fa00e76656cc152ad327c13fe365858fd7be306', [], []), (d) => d.evalsha('1fa00e76656cc152ad327c13fe365858fd7be306', 0)],
    [(r) => r.scriptExists('1fa00e76656cc152ad327c13fe365858fd7be306', 'ffff'), (d) => d.script('EXISTS', '1fa00e76656cc152ad327c13fe365858fd7be306', 'ffff')],
    [(r) => r.eval('return redis.error_reply("MY error")', [], []), (d) => d.eval('return redis.error_reply("MY error")', 0)],
  ],
  errors: [
    [(r, k) => r.set(k('a'), 'text'), (d, k) => d.set(k('a'), 'text')],
    [(r, k) => r.incr(k('a')), (d, k) => d.incr(k('a'))],
    [(r, k) => r.lpush(k('a'), 'x'), (d, k) => d.lpush(k('a'), 'x')],
    [(r, k) => r.evalsha('0000000000000000000000000000000000000000', [], []), (d) => d.evalsha('0000000000000000000000000000000000000000', 0)],
  ],
  pipelines: [
    [(r, k) => r.pipeline().set(k('a'), '1').incr(k('a')).get(k('a')).mget(k('a'), k('none')).exec(), (d, k) => d.pipeline().set(k('a'), '1').incr(k('a')).get(k('a')).mget(k('a'), k('none')).exec().then(results)],
    [(r, k) => Promise.all(Array.from({ length: 300 }, (_, i) => r.set(k(`p${i}`), String(i)))), (d, k) => Promise.all(Array.from({ length: 300 }, (_, i) => d.set(k(`p${i}`), String(i))))],
    [(r, k) => Promise.all(Array.from({ length: 300 }, (_, i) => r.get(k(`p${i}`)))), (d, k) => Promise.all(Array.from({ length: 300 }, (_, i) => d.get(k(`p${i}`))))],
  ],
  transactions: [
    [(r, k) => r.multi().set(k('a'), '1').incr(k('a')).rpush(k('l'), 'x', 'y').lrange(k('l'), 0, -1).exec(), (d, k) => d.multi().set(k('a'), '1').incr(k('a')).rpush(k('l'), 'x', 'y').lrange(k('l'), 0, -1).exec().then(results)],
    [(r, k) => Promise.all(Array.from({ length: 50 }, () => r.multi().incr(k('n')).incr(k('n')).exec().then(([a, b]) => b - a))), (d, k) => Promise.all(Array.from({ length: 50 }, () => d.multi().incr(k('n')).incr(k('n')).exec().then(results).then(([a, b]) => b - a)))],
    [(r, k) => r.get(k('n')), (d, k) => d.get(k('n'))],
  ],
  scanning: [
    [(r, k) => Promise.all(Array.from({ length: 100 }, (_, i) => r.set(k(`s${i}`), '1'))).then((all) => all.length), (d, k) => Promise.all(Array.from({ length: 100 }, (_, i) => d.set(k(`s${i}`), '1'))).then((all) => all.length)],
    [(r, k) => scan((cursor) => r.scan(cursor, { match: k('s*'), count: 30 })), (d, k) => scan((cursor) => d.scan(cursor, 'MATCH', k('s*'), 'COUNT', 30))],
    [(r, k) => r.keys(k('s1?')), (d, k) => d.keys(k('s1?')), (all) => all.map((key) => key.slice(2)).sort()],
  ],
};

function entries(all) {
  // One of the two makes an object of them, in the same order.
  return Array.isArray(all) ? Object.fromEntries(all.map(([id, fields]) => [id, Object.fromEntries(pairs(fields))])) : all;
}

function pairs(fields) {
  return fields.flatMap((field, i) => (i % 2 === 0 ? [[field, fields[i + 1]]] : []));
}

function results(all) {
  return all.map(([error, result]) => { if (error) throw error; return result; });
}

async function scan(step) {
  const found = [];
  let cursor = '0';
  do {
    const [next, keys] = await step(cursor);
    found.push(...keys);
    cursor = String(next);
  } while (cursor !== '0');
  return found.map((key) => key.slice(2)).sort();
}

/** What a step came to; of an error, what Redis said. */
async function outcome(step) {
  try {
    return await step();
  } catch (error) {
    return { error: error.message.replace(/, command was: .*/s, '').replace(/^Command failed: /, '') };
  }
}

async function group(client, steps, name) {
  for (const [index, [overHttp, directly, normal = (x) => x]] of steps.entries()) {
    const [ours, theirs] = [await outcome(() => overHttp(client, (key) => `${name}r:${key}`)), await outcome(() => directly(direct, (key) => `${name}d:${key}`))];
    const [a, b] = [ours, theirs].map((it) => (it?.error ? { error: it.error.replaceAll(/[A-Z][rd]:/g, '') } : normal(it)));
    const same = isDeepStrictEqual(plainly(a), plainly(b));
    if (!same) throw new Error(`step ${index + 1}: ${JSON.stringify(a)} over HTTP, and ${JSON.stringify(b)} directly`);
  }
}

/** Without prototypes. */
function plainly(value) {
  return value === undefined ? null : JSON.parse(JSON.stringify(value));
}

async function check(name, run) {
  try {
    await direct.flushall();
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`failed ${name}: ${String(error.stack).split('\n').slice(0, 3).join(' ')}`);
    process.exitCode = 1;
  }
}

const own = createRequire(import.meta.url)('./node_modules/@upstash/redis/package.json');
console.log(`version ${own.version}`);
for (const [name, steps] of Object.entries(GROUPS)) {
  await check(name, () => group(rest, steps, 'A'));
  await check(`${name}, one by one`, () => group(plain, steps, 'B'));
}
await check('values as the library makes them', async () => {
  await parsing.set('object', { a: [1, 'two', null] });
  if (!isDeepStrictEqual(await parsing.get('object'), { a: [1, 'two', null] })) throw new Error('not the same');
});
await check('subscriptions', async () => {
  const heard = [];
  const subscriber = parsing.subscribe(['news', 'more']);
  const patterns = parsing.psubscribe(['n*']);
  const ready = (on) => new Promise((resolve) => on.on(on === patterns ? 'psubscribe' : 'subscribe', resolve));
  subscriber.on('message', (message) => heard.push(message));
  patterns.on('pmessage', (message) => heard.push(message));
  await Promise.all([ready(subscriber), ready(patterns)]);
  await direct.publish('news', JSON.stringify({ n: 1 }));
  for (let i = 0; i < 100 && heard.length < 2; i++) await new Promise((resolve) => setTimeout(resolve, 20));
  await Promise.all([subscriber.unsubscribe(), patterns.unsubscribe()]);
  const expected = [{ channel: 'news', message: { n: 1 } }, { pattern: 'n*', channel: 'news', message: { n: 1 } }];
  const order = (all) => [...all].sort((a, b) => ('pattern' in a) - ('pattern' in b));
  if (!isDeepStrictEqual(plainly(order(heard)), expected)) throw new Error(JSON.stringify(heard));
});
direct.disconnect();
