// Real use of node-postgres, each check on many connections at once. What is asked holds a nonce that the answer must echo.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import pg from 'pg';
import Cursor from 'pg-cursor';
import copy from 'pg-copy-streams';
import { CONNECTIONS, TLS, many, nonce, run, sleep } from '../checks.mjs';

const connect = async (more = {}) => {
  const client = new pg.Client({ connectionTimeoutMillis: 20000, ...more });
  client.on('error', () => {}); // an error between two queries is seen by the next one
  client.connection.once('authenticationSASLContinue', () => { client.proof = client.saslSession.mechanism; });
  await client.connect();
  return client;
};

// Runs `work` on CONNECTIONS clients at once.
const onEach = (work, more) => many(async (n) => {
  const client = await connect(more);
  try {
    await work(client, n);
  } finally {
    await client.end();
  }
});

const TABLE = 'c_node_postgres';
const setUp = async (client) => {
  await client.query(`DROP TABLE IF EXISTS ${TABLE}`);
  await client.query(`CREATE TABLE ${TABLE} (worker int, n int, note text, UNIQUE (worker, n))`);
};

await run('node-postgres', JSON.parse(await (await import('node:fs/promises')).readFile('node_modules/pg/package.json')).version, {
  async transactions() {
    const first = await connect();
    await setUp(first);
    await onEach(async (client, worker) => {
      for (let n = 0; n < 20; n++) {
        await client.query('BEGIN');
        await client.query(`INSERT INTO ${TABLE} VALUES ($1, $2, $3)`, [worker, n, nonce()]);
        const { rows } = await client.query(`SELECT count(*)::int AS c FROM ${TABLE} WHERE worker = $1`, [worker]);
        assert.equal(rows[0].c, Math.floor(n / 2) + 1);
        await client.query(n % 2 ? 'COMMIT' : 'ROLLBACK');
      }
    }).catch(async (error) => { await first.end(); throw error; });
    const { rows } = await first.query(`SELECT count(*)::int AS c FROM ${TABLE}`);
    assert.equal(rows[0].c, CONNECTIONS * 10);
    await first.end();
  },

  async prepared() {
    await onEach(async (client, worker) => {
      for (let i = 0; i < 40; i++) {
        const mine = nonce();
        const name = `statement-${i % 4}`;
        const { rows } = await client.query({ name, text: `SELECT $1::text AS nonce, $2::int + ${i % 4} AS n`, values: [mine, worker] });
        assert.deepEqual(rows, [{ nonce: mine, n: worker + (i % 4) }]);
      }
    });
  },

  async parameters_unnamed() {
    await onEach(async (client) => {
      for (let i = 0; i < 40; i++) {
        const mine = nonce();
        const { rows } = await client.query('SELECT $1::text AS nonce', [mine]);
        assert.equal(rows[0].nonce, mine);
      }
    });
  },

  // The driver queues what is not awaited; an error must fail its own query only.
  async errors_in_a_queue() {
    await onEach(async (client) => {
      const asked = Array.from({ length: 12 }, (_, i) => ({ i, mine: nonce() }));
      const answers = await Promise.allSettled(asked.map(({ i, mine }) => i % 4 === 2
        ? client.query('SELECT 1/$1::int', [0])
        : client.query('SELECT $1::text AS nonce', [mine])));
      answers.forEach((answer, i) => {
        if (i % 4 === 2) assert.equal(answer.reason?.code, '22012');
        else assert.equal(answer.value?.rows[0].nonce, asked[i].mine);
      });
    });
  },

  async copy() {
    const client = await connect();
    await setUp(client);
    const lines = Array.from({ length: 20000 }, (_, n) => `1\t${n}\tnote ${n}\n`);
    await pipeline(Readable.from(lines), client.query(copy.from(`COPY ${TABLE} FROM STDIN`)));
    let got = '';
    for await (const chunk of client.query(copy.to(`COPY (SELECT * FROM ${TABLE} ORDER BY n) TO STDOUT`))) got += chunk;
    assert.equal(got, lines.join(''));
    await assert.rejects(pipeline(Readable.from(['rubbish\n']), client.query(copy.from(`COPY ${TABLE} FROM STDIN`))), { code: '22P02' });
    assert.equal((await client.query("SELECT 'after' AS a")).rows[0].a, 'after');
    await client.end();
  },

  async cursors() {
    await onEach(async (client, worker) => {
      await client.query('BEGIN');
      const cursor = client.query(new Cursor('SELECT generate_series(1, 95) + $1::int AS n', [worker * 1000]));
      const seen = [];
      for (let rows; (rows = await cursor.read(10)).length; ) seen.push(...rows.map((row) => row.n));
      await cursor.close();
      await client.query('COMMIT');
      assert.deepEqual(seen, Array.from({ length: 95 }, (_, i) => worker * 1000 + i + 1));
    });
  },

  async cancel() {
    await onEach(async (client) => {
      const query = new pg.Query('SELECT pg_sleep(30)');
      const failed = once(query, 'error').catch((error) => [error]);
      client.query(query);
      await sleep(300);
      let error;
      // The wish to cancel may come before the query does; then it is meant for nothing.
      for (let tries = 0; !error && tries < 20; tries++) {
        new pg.Client().cancel(client, query);
        error = (await Promise.race([failed, sleep(500)]))?.[0];
      }
      assert.equal(error?.code, '57014');
      const mine = nonce();
      assert.equal((await client.query('SELECT $1::text AS nonce', [mine])).rows[0].nonce, mine);
    });
  },

  async timeouts() {
    await onEach(async (client) => {
      await client.query('BEGIN');
      await client.query("SET LOCAL statement_timeout = '100ms'");
      await assert.rejects(client.query('SELECT pg_sleep(10)'), { code: '57014' });
      await client.query('ROLLBACK');
      assert.equal((await client.query('SELECT 1 AS one')).rows[0].one, 1);
    });
  },

  // The driver asks for it at connect, as a start-up parameter.
  async timeout_of_the_connection() {
    await onEach(async (client) => {
      await assert.rejects(client.query('SELECT pg_sleep(10)'), { code: '57014' });
    }, { statement_timeout: 200 });
  },

  async types() {
    await onEach(async (client) => {
      const day = new Date('2026-01-02T03:04:05.678Z');
      const { rows } = await client.query(
        'SELECT $1::int4 AS i, $2::int8 AS l, $3::numeric AS d, $4::timestamptz AS t, $5::bytea AS b, $6::jsonb AS j, $7::int[] AS a, $8::text AS n, $9::bool AS f, $10::float8 AS e, $11::uuid AS u',
        [7, '9007199254740993', '1.10', day, Buffer.from([0, 255]), { a: [1] }, [1, 2, 3], null, true, 0.1, '6f1b0c1e-0000-4000-8000-000000000001']);
      assert.deepEqual(rows[0], { i: 7, l: '9007199254740993', d: '1.10', t: day, b: Buffer.from([0, 255]), j: { a: [1] }, a: [1, 2, 3], n: null,
        f: true, e: 0.1, u: '6f1b0c1e-0000-4000-8000-000000000001' });
    });
  },

  async settings() {
    await onEach(async (client, worker) => {
      await client.query(`SET search_path = schema_${worker}, public`);
      await client.query("SELECT set_config('app.tenant', $1, false)", [`tenant ${worker}`]);
      for (let i = 0; i < 20; i++) {
        const { rows } = await client.query("SELECT current_setting('search_path') AS s, current_setting('app.tenant', true) AS t");
        assert.deepEqual(rows[0], { s: `schema_${worker}, public`, t: `tenant ${worker}` });
      }
    });
  },

  async listen() {
    await onEach(async (client, worker) => {
      const got = [];
      client.on('notification', ({ channel, payload }) => got.push([channel, payload]));
      await client.query(`LISTEN channel_${worker}`);
      for (let i = 0; i < 5; i++) await client.query('SELECT pg_notify($1, $2)', [`channel_${worker}`, `note ${i}`]);
      for (let i = 0; i < 100 && got.length < 5; i++) await sleep(50);
      assert.deepEqual(got, [0, 1, 2, 3, 4].map((i) => [`channel_${worker}`, `note ${i}`]));
    });
  },

  async tls() {
    await onEach(async (client, worker) => {
      assert.ok(client.connection.stream.encrypted);
      assert.equal(client.proof, 'SCRAM-SHA-256');
      for (let n = 0; n < 20; n++) {
        const mine = nonce();
        await client.query('BEGIN');
        assert.equal((await client.query('SELECT $1::text AS nonce', [mine])).rows[0].nonce, mine);
        const { rows } = await client.query({ name: 'by name', text: 'SELECT $1::text AS nonce, $2::int AS n', values: [mine, worker] });
        assert.deepEqual(rows, [{ nonce: mine, n: worker }]);
        await client.query('COMMIT');
      }
    }, { ssl: { rejectUnauthorized: false } });
  },

  async tls_verified() {
    await onEach(async (client) => {
      assert.ok(client.connection.stream.authorized);
      const mine = nonce();
      assert.equal((await client.query('SELECT $1::text AS nonce', [mine])).rows[0].nonce, mine);
    }, { host: TLS.host, ssl: { ca: TLS.ca } });
    await assert.rejects(connect({ host: TLS.host, ssl: { ca: TLS.otherCa } }), { code: /^(UNABLE_TO_VERIFY_LEAF_SIGNATURE|SELF_SIGNED_CERT_IN_CHAIN)$/ });
    // For an address the driver checks no name unless it is told one.
    await assert.rejects(connect({ ssl: { ca: TLS.ca, servername: 'elsewhere.test' } }), { code: 'ERR_TLS_CERT_ALTNAME_INVALID' });
  },

  async channel_binding() {
    await onEach(async (client) => {
      assert.equal(client.proof, 'SCRAM-SHA-256-PLUS');
      const mine = nonce();
      assert.equal((await client.query('SELECT $1::text AS nonce', [mine])).rows[0].nonce, mine);
    }, { enableChannelBinding: true, ssl: { rejectUnauthorized: false } });
  },

  // The driver's own pool in front of ours.
  async own_pool() {
    const pool = new pg.Pool({ max: CONNECTIONS });
    await Promise.all(Array.from({ length: 300 }, async () => {
      const mine = nonce();
      const { rows } = await pool.query('SELECT $1::text AS nonce', [mine]);
      assert.equal(rows[0].nonce, mine);
    }));
    await pool.end();
  },
});
