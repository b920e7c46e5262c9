import com.mongodb.ConnectionString;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoWriteException;
import com.mongodb.ReadPreference;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.WriteModel;
import com.mongodb.connection.ServerType;
import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import com.mongodb.event.ConnectionPoolClearedEvent;
import com.mongodb.event.ConnectionPoolListener;
import com.mongodb.event.ServerDescriptionChangedEvent;
import com.mongodb.event.ServerHeartbeatSucceededEvent;
import com.mongodb.event.ServerListener;
import com.mongodb.event.ServerMonitorListener;
import java.security.SecureRandom;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.bson.Document;

/**
 * The Java driver: what an application does with MongoDB, many tasks at once. What a task reads must hold the nonce that it alone wrote, so
 * an answer that reached another client is noticed.
 */
public class Main {
    static final int TASKS = 8;
    static final String OPTIONS = System.getenv("OPTIONS");
    static final boolean BALANCED = OPTIONS.contains("loadBalanced=true");
    static final ExecutorService THREADS = Executors.newCachedThreadPool();
    static final SecureRandom RANDOM = new SecureRandom();

    /** What the driver tells of all clients of this program. */
    static final AtomicInteger POOLS_CLEARED = new AtomicInteger();
    static final AtomicInteger SERVERS_UNKNOWN = new AtomicInteger();
    static final AtomicInteger HEARTBEATS = new AtomicInteger();
    static final Map<String, ConcurrentLinkedQueue<String>> SESSIONS = new ConcurrentHashMap<>();

    interface Task {
        void run(MongoClient client, MongoDatabase app, String own) throws Exception;
    }

    interface Numbered {
        void run(int number) throws Exception;
    }

    interface Using {
        void run(MongoClient client) throws Exception;
    }

    /** Lends a client with a pool of so many connections. */
    static void connected(int pool, Using work) throws Exception {
        var leaving = new boolean[1];
        var address = "mongodb://" + System.getenv("HOST") + ":" + System.getenv("PORT") + "/?" + OPTIONS;
        var settings = MongoClientSettings.builder().applyConnectionString(new ConnectionString(address))
            .applyToClusterSettings(cluster -> cluster.serverSelectionTimeout(20, TimeUnit.SECONDS))
            .applyToConnectionPoolSettings(pools -> pools.maxSize(pool).addConnectionPoolListener(new ConnectionPoolListener() {
                @Override
                public void connectionPoolCleared(ConnectionPoolClearedEvent told) {
                    POOLS_CLEARED.incrementAndGet();
                }
            }))
            .applyToServerSettings(server -> server.heartbeatFrequency(500, TimeUnit.MILLISECONDS).addServerListener(new ServerListener() {
                @Override
                public void serverDescriptionChanged(ServerDescriptionChangedEvent told) {
                    var before = told.getPreviousDescription().getType();
                    if (told.getNewDescription().getType() == ServerType.UNKNOWN && before != ServerType.UNKNOWN && !leaving[0]) {
                        SERVERS_UNKNOWN.incrementAndGet();
                    }
                }
            }).addServerMonitorListener(new ServerMonitorListener() {
                @Override
                public void serverHeartbeatSucceeded(ServerHeartbeatSucceededEvent told) {
                    HEARTBEATS.incrementAndGet();
                }
            }))
            .addCommandListener(new CommandListener() {
                @Override
                public void commandStarted(CommandStartedEvent told) {
                    var command = told.getCommand();
                    if (command.containsKey("lsid") && command.toJson().contains("\"sessions\"")) {
                        SESSIONS.computeIfAbsent(command.getDocument("lsid").toJson(), id -> new ConcurrentLinkedQueue<>()).add(told.getCommandName());
                    }
                }
            }).build();
        try (var client = MongoClients.create(settings)) {
            work.run(client);
            leaving[0] = true;
        }
    }

    static String nonce() {
        var bytes = new byte[12];
        RANDOM.nextBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    static void same(Object got, Object wanted) {
        if (!Objects.equals(got, wanted)) {
            throw new AssertionError(String.format("%.200s instead of %.200s", got, wanted));
        }
    }

    static <T> List<T> made(int count, Function<Integer, T> how) {
        return new ArrayList<>(IntStream.range(0, count).boxed().map(how).toList());
    }

    static List<Document> numbered(int count, String value, String own) {
        return made(count, n -> new Document("_id", nonce()).append("value", value).append("own", own).append("n", n));
    }

    /** Does this that many times at once, and throws the first failure. */
    static void atOnce(int count, Numbered work) throws Exception {
        Throwable failed = null;
        for (Future<?> one : made(count, number -> THREADS.submit(() -> {
            work.run(number);
            return null;
        }))) {
            try {
                one.get();
            } catch (Exception error) {
                failed = failed == null ? error.getCause() : failed;
            }
        }
        if (failed != null) {
            throw new Exception(failed);
        }
    }

    static void crud(MongoClient client, MongoDatabase app, String own) {
        var things = app.getCollection("crud");
        String value = nonce(), other = nonce();
        var whole = new Document("_id", own).append("value", value).append("n", 1);
        same(things.insertOne(whole).getInsertedId().asString().getValue(), own);
        same(things.find(new Document("_id", own)).first(), whole);
        same(things.updateOne(new Document("value", value), new Document("$inc", new Document("n", 6))).getModifiedCount(), 1L);
        var after = new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER);
        var changed = things.findOneAndUpdate(new Document("value", value), new Document("$set", new Document("seen", true)), after);
        same(changed, whole.append("n", 7).append("seen", true));
        var replaced = things.replaceOne(new Document("_id", other), new Document("value", value), new ReplaceOptions().upsert(true));
        same(replaced.getUpsertedId().asString().getValue(), other);
        same(things.countDocuments(new Document("value", value)), 2L);
        same(things.distinct("value", new Document("_id", own), String.class).into(new ArrayList<>()), List.of(value));
        same(things.deleteMany(new Document("value", value)).getDeletedCount(), 2L);
        same(things.find(new Document("value", value)).first(), null);
    }

    static void bulk(MongoClient client, MongoDatabase app, String own) {
        var things = app.getCollection("bulk");
        var values = made(100, n -> nonce());
        for (var ordered : List.of(true, false)) {
            var options = new BulkWriteOptions().ordered(ordered);
            var first = new ArrayList<WriteModel<Document>>();
            values.forEach(value -> first.add(new InsertOneModel<>(new Document("_id", value).append("own", own))));
            same(things.bulkWrite(first, options).getInsertedCount(), 100);
            var second = new ArrayList<WriteModel<Document>>();
            var other = nonce();
            var change = new Document("$set", new Document("n", -1));
            values.subList(0, 20).forEach(value -> second.add(new UpdateOneModel<>(new Document("_id", value), change)));
            second.add(new ReplaceOneModel<>(new Document("_id", other), new Document("own", own), new ReplaceOptions().upsert(true)));
            values.subList(20, 50).forEach(value -> second.add(new DeleteOneModel<>(new Document("_id", value))));
            var done = things.bulkWrite(second, options);
            same(List.of(done.getModifiedCount(), done.getDeletedCount()), List.of(20, 30));
            same(done.getUpserts().stream().map(one -> one.getId().asString().getValue()).toList(), List.of(other));
            var fresh = made(3, n -> nonce());
            var third = new ArrayList<WriteModel<Document>>();
            for (var id : List.of(fresh.get(0), values.get(0), fresh.get(1), values.get(1), fresh.get(2))) {
                third.add(new InsertOneModel<>(new Document("_id", id).append("own", own)));
            }
            try {
                things.bulkWrite(third, options);
                throw new AssertionError("no error");
            } catch (MongoBulkWriteException error) {
                var found = error.getWriteErrors().stream().map(one -> List.of(one.getIndex(), one.getCode())).toList();
                same(found, List.of(List.of(1, 11000), List.of(3, 11000)).subList(0, ordered ? 1 : 2));
            }
            var left = new ArrayList<>(values.subList(0, 20));
            left.addAll(values.subList(50, 100));
            left.addAll(fresh.subList(0, ordered ? 1 : 3));
            left.add(other);
            var found = things.find(new Document("own", own)).map(one -> one.getString("_id")).into(new ArrayList<>());
            same(found.stream().sorted().toList(), left.stream().sorted().toList());
            things.deleteMany(new Document("own", own));
        }
    }

    static void cursors(MongoClient none, MongoDatabase no, String own) throws Exception {
        for (var pool : List.of(1, 10, 100)) {
            // A driver in front of a balancer keeps a connection for each open cursor.
            var count = BALANCED ? pool : 200;
            var opened = new CountDownLatch(count);
            connected(pool, client -> atOnce(count, number -> {
                var things = client.getDatabase("app").getCollection("cursors" + number);
                var given = numbered(12, nonce(), own);
                var found = new ArrayList<Document>();
                things.insertMany(given);
                var query = things.find(new Document("value", given.get(0).get("value"))).batchSize(3).sort(new Document("n", 1));
                try (var cursor = query.iterator()) {
                    found.add(cursor.next());
                    opened.countDown();
                    opened.await(60, TimeUnit.SECONDS);
                    cursor.forEachRemaining(found::add);
                }
                same(found, given);
            }));
        }
    }

    static void aggregations(MongoClient client, MongoDatabase app, String own) {
        var things = app.getCollection("aggregations");
        var given = numbered(120, nonce(), own);
        things.insertMany(given);
        var match = new Document("$match", new Document("own", own));
        for (int i = 0; i < 3; i++) {
            var ordered = List.of(match, new Document("$sort", new Document("n", 1)), new Document("$skip", 20));
            same(things.aggregate(ordered).batchSize(6).into(new ArrayList<>()), given.subList(20, 120));
            var group = new Document("$group", new Document("_id", "$value").append("sum", new Document("$sum", "$n")));
            var summed = things.aggregate(List.of(match, group)).into(new ArrayList<>());
            same(summed, List.of(new Document("_id", given.get(0).get("value")).append("sum", 119 * 60)));
        }
    }

    static void sessions(MongoClient client, MongoDatabase app, String own) {
        var things = app.getCollection("sessions");
        var value = nonce();
        try (ClientSession session = client.startSession(); ClientSession other = client.startSession()) {
            things.insertOne(session, new Document("_id", own).append("value", value));
            for (int n = 0; n < 10; n++) {
                things.updateOne(session, new Document("_id", own), new Document("$set", new Document("n", n)));
                var wanted = new Document("_id", own).append("value", value).append("n", n);
                same(things.find(session, new Document("_id", own)).first(), wanted);
                same(things.find(other, new Document("value", value)).first(), wanted);
            }
            var given = numbered(40, value, own);
            things.insertMany(session, given);
            var found = things.find(session, new Document("own", own)).batchSize(3).sort(new Document("n", 1)).into(new ArrayList<>());
            same(found, given);
            var kinds = List.of(session, other).stream().map(one -> SESSIONS.get(one.getServerSession().getIdentifier().toJson())).toList();
            same(kinds.stream().map(some -> some.stream().filter("find"::equals).count()).toList(), List.of(11L, 10L));
            same(kinds.get(0).contains("getMore"), true);
        }
    }

    static void large(MongoClient client, MongoDatabase app, String own) {
        var things = app.getCollection("large");
        var size = new int[] {4, 6, 8, 10, 12, 15}[own.charAt(own.length() - 1) - '0'] * 1_000_000;
        var text = nonce().repeat(700_000).substring(0, size);
        things.insertOne(new Document("_id", own).append("text", text));
        same(things.find(new Document("_id", own)).first().getString("text").equals(text), true);
        var part = text.substring(0, 4_000_000);
        things.insertMany(made(2, n -> new Document("own", own).append("text", part)));
        var found = things.find(new Document("own", own)).map(one -> one.getString("text").equals(part)).into(new ArrayList<>());
        same(found, List.of(true, true));
    }

    static void errors(MongoClient client, MongoDatabase app, String own) {
        var things = app.getCollection("errors");
        for (int i = 0; i < 5; i++) {
            var value = nonce();
            var whole = new Document("_id", value).append("own", own);
            things.insertOne(whole);
            same(failure(MongoWriteException.class, () -> things.insertOne(new Document("_id", value))).getCode(), 11000);
            var unknown = failure(MongoCommandException.class, () -> app.runCommand(new Document("no" + value, 1)));
            same(List.of(unknown.getErrorCode(), unknown.getMessage().contains(value)), List.of(59, true));
            var find = new Document("find", "errors").append("filter", new Document("$no" + value, 1));
            same(failure(MongoCommandException.class, () -> app.runCommand(find)).getMessage().contains(value), true);
            same(things.find(new Document("_id", value)).first(), whole);
        }
    }

    static <E extends Exception> E failure(Class<E> kind, Runnable work) {
        try {
            work.run();
        } catch (Exception error) {
            same(error.getClass(), kind);
            return kind.cast(error);
        }
        throw new AssertionError("no error");
    }

    static void hundreds(MongoClient none, MongoDatabase no, String own) throws Exception {
        var after = new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER);
        atOnce(3, which -> connected(100, client -> atOnce(100, number -> {
            MongoCollection<Document> things = client.getDatabase("app").getCollection("hundreds");
            for (int n = 0; n < 3; n++) {
                var whole = new Document("_id", nonce()).append("value", nonce());
                var id = new Document("_id", whole.get("_id"));
                things.insertOne(whole);
                same(things.find(id).first(), whole);
                same(things.findOneAndUpdate(id, new Document("$set", new Document("n", n)), after), whole.append("n", n));
            }
        })));
        connected(1, client -> same(client.getDatabase("app").getCollection("hundreds").countDocuments(), 900L));
    }

    static void monitoring(MongoClient client, MongoDatabase app, String own) throws Exception {
        var before = HEARTBEATS.get();
        var things = app.getCollection("monitoring").withReadPreference(ReadPreference.secondaryPreferred());
        for (int i = 0; i < 2; i++) {
            var whole = new Document("_id", nonce()).append("own", own);
            things.insertOne(whole);
            same(things.find(new Document("_id", whole.get("_id"))).first(), whole);
            Thread.sleep(2000);
        }
        // Nobody watches a balancer.
        same(HEARTBEATS.get() > before + 2, !BALANCED);
    }

    public static void main(String[] arguments) {
        java.util.logging.Logger.getLogger("org.mongodb").setLevel(java.util.logging.Level.OFF);
        var checks = new LinkedHashMap<String, Task>();
        checks.put("crud", Main::crud);
        checks.put("bulk", Main::bulk);
        checks.put("cursors", Main::cursors);
        checks.put("aggregations", Main::aggregations);
        checks.put("sessions", Main::sessions);
        checks.put("large", Main::large);
        checks.put("errors", Main::errors);
        checks.put("hundreds", Main::hundreds);
        checks.put("monitoring", Main::monitoring);
        System.out.println("version " + com.mongodb.internal.build.MongoDriverVersion.VERSION);
        for (var check : checks.entrySet()) {
            var name = check.getKey();
            try {
                if (name.equals("cursors") || name.equals("hundreds")) {
                    check.getValue().run(null, null, name);
                } else {
                    atOnce(name.equals("large") ? 6 : TASKS, number -> connected(4, client ->
                        check.getValue().run(client, client.getDatabase("app"), name + ":" + number)));
                }
                same(List.of(POOLS_CLEARED.get(), SERVERS_UNKNOWN.get()), List.of(0, 0));
                System.out.println("ok " + name);
            } catch (Throwable error) {
                System.out.println("failed " + name + ": " + String.format("%.300s", String.valueOf(error.getMessage()).replaceAll("\\s+", " ")));
            }
        }
        System.exit(0);
    }
}
