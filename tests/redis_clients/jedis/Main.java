import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.XReadParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis: what an application does with Redis, on several connections at once; each value holds what only its connection knows. */
public class Main {
    static final int CONNECTIONS = 8;
    static final ExecutorService THREADS = Executors.newCachedThreadPool();

    interface Check {
        void run(Jedis jedis, String own) throws Exception;
    }

    static Jedis connect(int database, String name) {
        RedisProtocol version = System.getenv("RESP").equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
        HostAndPort where = new HostAndPort(System.getenv("HOST"), Integer.parseInt(System.getenv("PORT")));
        return new Jedis(where, DefaultJedisClientConfig.builder().protocol(version).database(database).clientName(name).timeoutMillis(20_000).build());
    }

    static String nonce() {
        return UUID.randomUUID().toString();
    }

    static void same(Object got, Object wanted) {
        if (!got.equals(wanted)) {
            throw new AssertionError(got + " instead of " + wanted);
        }
    }

    static void types(Jedis r, String own) {
        String value = nonce();
        same(r.set(own, value), "OK");
        same(r.get(own), value);
        same(r.incrBy(own + ":n", 7), 7L);
        r.hset(own + ":h", Map.of("a", value, "b", "2"));
        same(r.hgetAll(own + ":h"), Map.of("a", value, "b", "2"));
        r.rpush(own + ":l", value, "x");
        same(r.lrange(own + ":l", 0, -1), List.of(value, "x"));
        r.zadd(own + ":z", 1.5, value);
        same(r.zscore(own + ":z", value), 1.5);
        same(r.get(own + ":none") == null, true);
    }

    static void pipelines(Jedis r, String own) {
        Map<String, Response<String>> read = new LinkedHashMap<>();
        try (Pipeline pipe = r.pipelined()) {
            for (int i = 0; i < 500; i++) {
                String value = nonce();
                pipe.set(own + i, value);
                read.put(value, pipe.get(own + i));
            }
            pipe.sync();
        }
        read.forEach((value, reply) -> same(reply.get(), value));
    }

    static void transactions(Jedis r, String own) {
        for (int i = 1; i <= 20; i++) {
            Transaction transaction = r.multi();
            Response<Long> count = transaction.incr(own);
            Response<String> value = transaction.get(own);
            transaction.exec();
            same(count.get(), (long) i);
            same(value.get(), String.valueOf(i));
        }
    }

    static void watching(Jedis r, String own) {
        r.watch(own);
        try (Jedis other = connect(0, null)) {
            other.set(own, "other");
        }
        Transaction transaction = r.multi();
        transaction.set(own, "mine");
        same(transaction.exec() == null, true);
        same(r.get(own), "other");
    }

    static void blocking(Jedis r, String own) throws Exception {
        String value = nonce();
        Future<List<String>> popped = THREADS.submit(() -> {
            try (Jedis other = connect(0, null)) {
                return other.blpop(10, own);
            }
        });
        r.rpush(own, value);
        same(popped.get(), List.of(own, value));
    }

    static void subscriptions(Jedis r, String own) throws Exception {
        String value = nonce();
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        CompletableFuture<Void> listening = new CompletableFuture<>();
        JedisPubSub listener = new JedisPubSub() {
            @Override
            public void onSubscribe(String channel, int count) {
                listening.complete(null);
            }

            @Override
            public void onMessage(String channel, String message) {
                heard.add(channel + " " + message);
                unsubscribe();
            }
        };
        Future<String> afterwards = THREADS.submit(() -> {
            try (Jedis other = connect(0, null)) {
                other.subscribe(listener, own);
                // The connection is an ordinary one again.
                other.set(own, value);
                return other.get(own);
            }
        });
        listening.get(10, TimeUnit.SECONDS);
        same(r.publish(own, value), 1L);
        same(heard.poll(10, TimeUnit.SECONDS), own + " " + value);
        same(afterwards.get(), value);
    }

    static void scanning(Jedis r, String own) {
        TreeSet<String> wanted = new TreeSet<>();
        TreeSet<String> found = new TreeSet<>();
        for (int i = 0; i < 200; i++) {
            wanted.add(own + ":" + i);
            r.set(own + ":" + i, "x");
        }
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<String> part = r.scan(cursor, new ScanParams().match(own + ":*").count(50));
            found.addAll(part.getResult());
            cursor = part.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        same(found, wanted);
    }

    static void scripts(Jedis r, String own) {
        String twice = "return {KEYS[1], ARGV[1] .. ARGV[1]}";
        String value = nonce();
        same(r.eval(twice, List.of(own), List.of(value)), List.of(own, value + value));
        same(r.evalsha(r.scriptLoad(twice), List.of(own), List.of(value)), List.of(own, value + value));
    }

    static void large(Jedis r, String own) {
        String value = nonce().repeat(84_000);
        r.set(own, value);
        same(r.get(own).equals(value), true);
    }

    static void streams(Jedis r, String own) throws Exception {
        String value = nonce();
        Future<Map<String, String>> read = THREADS.submit(() -> {
            try (Jedis other = connect(0, null)) {
                Map<String, StreamEntryID> from = Map.of(own, new StreamEntryID("0-0"));
                return other.xread(new XReadParams().block(10_000), from).get(0).getValue().get(0).getFields();
            }
        });
        r.xadd(own, StreamEntryID.NEW_ENTRY, Map.of("field", value));
        same(read.get(), Map.of("field", value));
    }

    static void databases(Jedis r, String own) {
        String value = nonce();
        try (Jedis elsewhere = connect(3, "elsewhere")) {
            elsewhere.set(own, value);
            r.set(own, "here");
            same(elsewhere.get(own), value);
            same(elsewhere.clientGetname(), "elsewhere");
        }
    }

    static void errors(Jedis r, String own) {
        r.set(own, "x");
        same(refused(() -> r.lpush(own, "y")).contains("WRONGTYPE"), true);
        same(refused(() -> r.sendCommand(() -> "NOSUCHCOMMAND".getBytes())).contains("unknown command"), true);
        same(r.get(own), "x");
    }

    static String refused(Runnable command) {
        try {
            command.run();
        } catch (JedisDataException why) {
            return why.getMessage();
        }
        throw new AssertionError("no error");
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("version " + Jedis.class.getProtectionDomain().getCodeSource().getLocation().getPath().replaceAll(".*jedis-|\\.jar$", ""));
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("types", Main::types);
        checks.put("pipelines", Main::pipelines);
        checks.put("transactions", Main::transactions);
        checks.put("watching", Main::watching);
        checks.put("blocking", Main::blocking);
        checks.put("subscriptions", Main::subscriptions);
        checks.put("scanning", Main::scanning);
        checks.put("scripts", Main::scripts);
        checks.put("large", Main::large);
        checks.put("streams", Main::streams);
        checks.put("databases", Main::databases);
        checks.put("errors", Main::errors);
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            List<Future<?>> running = new ArrayList<>();
            for (int i = 0; i < CONNECTIONS; i++) {
                String own = check.getKey() + ":" + i;
                running.add(THREADS.submit(() -> {
                    try (Jedis jedis = connect(0, null)) {
                        check.getValue().run(jedis, own);
                    }
                    return null;
                }));
            }
            Throwable failed = null;
            for (Future<?> one : running) {
                try {
                    one.get(60, TimeUnit.SECONDS);
                } catch (Exception why) {
                    failed = why;
                }
            }
            System.out.println(failed == null ? "ok " + check.getKey() : "failed " + check.getKey() + ": " + String.valueOf(failed).replace('\n', ' '));
        }
        System.exit(0);
    }
}
