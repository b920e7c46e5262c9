import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.copy.CopyManager;

/** Real use of pgjdbc, each check on many connections at once. What is asked holds a nonce that the answer must echo. */
public class Main {
    static final int CONNECTIONS = Integer.parseInt(env("CONNECTIONS", "8"));
    static final int LIMIT_SECONDS = 60;
    static final String TABLE = "c_jdbc";

    interface Check {
        void run() throws Exception;
    }

    interface Work {
        void run(Connection connection, int worker) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("version " + org.postgresql.Driver.class.getPackage().getImplementationVersion());
        Map<String, Check> checks = new LinkedHashMap<>();
        // At threshold 0 the driver never prepares by name.
        checks.put("transactions", () -> transactions(0));
        checks.put("unprepared", () -> statements(0));
        // The default threshold, and the strictest: by name from the first execution on.
        checks.put("prepared", () -> { statements(5); transactions(5); });
        checks.put("prepared_at_once", () -> { statements(1); statements(-1); transactions(1); });
        checks.put("batches", () -> batches(0));
        checks.put("prepared_batches", () -> batches(1));
        checks.put("copy", Main::copy);
        checks.put("cursors", () -> cursors(0));
        checks.put("prepared_cursors", () -> cursors(1));
        checks.put("cancel", Main::cancel);
        checks.put("timeouts", Main::timeouts);
        checks.put("types", () -> types(0));
        checks.put("prepared_types", () -> types(1));
        checks.put("settings", Main::settings);
        checks.put("listen", Main::listen);
        checks.put("tls", Main::tls);
        checks.put("tls_verified", Main::tlsVerified);
        checks.put("channel_binding", Main::channelBinding);
        String wanted = env("CHECKS", "");
        Set<String> chosen = wanted.isEmpty() ? checks.keySet() : Set.of(wanted.split(","));
        int status = 0;
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            if (!chosen.contains(check.getKey())) {
                continue;
            }
            try {
                check.getValue().run();
                System.out.println("ok " + check.getKey());
            } catch (Throwable problem) {
                Throwable cause = problem.getCause() != null ? problem.getCause() : problem;
                System.out.println("failed " + check.getKey() + ": " + String.valueOf(cause).replace('\n', ' '));
                status = 1;
            }
        }
        System.exit(status);
    }

    static String env(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    static Connection connect(int threshold, String... more) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", env("PGUSER", ""));
        properties.setProperty("password", env("PGPASSWORD", ""));
        properties.setProperty("prepareThreshold", String.valueOf(threshold));
        properties.setProperty("host", env("PGHOST", ""));
        properties.setProperty("sslmode", "disable");
        properties.setProperty("connectTimeout", "20");
        for (int at = 0; at < more.length; at += 2) {
            properties.setProperty(more[at], more[at + 1]);
        }
        return DriverManager.getConnection("jdbc:postgresql://" + properties.remove("host") + ":" + env("PGPORT", "") + "/" + env("PGDATABASE", ""), properties);
    }

    /** Runs the work on many connections at once, each in a thread of its own. */
    static void onEach(int threshold, Work work, String... more) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(CONNECTIONS);
        List<Future<?>> running = new ArrayList<>();
        for (int n = 0; n < CONNECTIONS; n++) {
            int worker = n;
            running.add(threads.submit(() -> {
                try (Connection connection = connect(threshold, more)) {
                    work.run(connection, worker);
                }
                return null;
            }));
        }
        try {
            for (Future<?> future : running) {
                future.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            }
        } finally {
            threads.shutdownNow();
        }
    }

    static void same(String what, Object expected, Object got) {
        if (!java.util.Objects.deepEquals(expected, got)) {
            throw new AssertionError(what + ": expected " + expected + ", got " + got);
        }
    }

    interface Failing {
        void run() throws SQLException;
    }

    static void fails(String state, Failing work) throws SQLException {
        try {
            work.run();
        } catch (SQLException error) {
            same("SQLSTATE of " + error, state, error.getSQLState());
            return;
        }
        throw new AssertionError("it did not fail with " + state);
    }

    static void echo(Connection connection) throws SQLException {
        String mine = UUID.randomUUID().toString();
        try (PreparedStatement statement = connection.prepareStatement("SELECT ?::text")) {
            statement.setString(1, mine);
            ResultSet rows = statement.executeQuery();
            rows.next();
            same("nonce", mine, rows.getString(1));
        }
    }

    static void setUp() throws SQLException {
        try (Connection connection = connect(0); Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS " + TABLE + "; CREATE TABLE " + TABLE + " (worker int, n int, note text, UNIQUE (worker, n))");
        }
    }

    static int count(Connection connection, int worker) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("SELECT count(*) FROM " + TABLE + " WHERE worker = ?")) {
            statement.setInt(1, worker);
            ResultSet rows = statement.executeQuery();
            rows.next();
            return rows.getInt(1);
        }
    }

    static void transactions(int threshold) throws Exception {
        setUp();
        onEach(threshold, (connection, worker) -> {
            connection.setAutoCommit(false);
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + TABLE + " VALUES (?, ?, ?)"); Statement other = connection.createStatement()) {
                for (int n = 0; n < 20; n++) {
                    insert.setInt(1, worker);
                    insert.setInt(2, n);
                    insert.setString(3, UUID.randomUUID().toString());
                    same("inserted", 1, insert.executeUpdate());
                    Savepoint savepoint = connection.setSavepoint();
                    fails("22012", () -> other.execute("SELECT 1/0"));
                    fails("25P02", () -> other.execute("SELECT 1"));
                    connection.rollback(savepoint);
                    if (n % 2 == 0) {
                        connection.rollback();
                    } else {
                        connection.commit();
                    }
                }
            }
            same("rows", 10, count(connection, worker));
            connection.rollback();
        });
    }

    /** The same statements again and again, kept and made anew, so that the driver's own cache is met, too. */
    static void statements(int threshold) throws Exception {
        onEach(threshold, (connection, worker) -> {
            try (PreparedStatement kept = connection.prepareStatement("SELECT ?::text, ? + 1")) {
                for (int n = 0; n < 40; n++) {
                    String mine = UUID.randomUUID().toString();
                    kept.setString(1, mine);
                    kept.setInt(2, n);
                    ResultSet rows = kept.executeQuery();
                    rows.next();
                    same("nonce", mine, rows.getString(1));
                    same("sum", n + 1, rows.getInt(2));
                    echo(connection);
                }
            }
        });
    }

    static void batches(int threshold) throws Exception {
        setUp();
        onEach(threshold, (connection, worker) -> {
            connection.setAutoCommit(false);
            try (PreparedStatement insert = connection.prepareStatement("INSERT INTO " + TABLE + " VALUES (?, ?, ?)")) {
                for (int round = 0; round < 6; round++) {
                    boolean failing = round % 2 == 1;
                    for (int n = 0; n < 30; n++) {
                        insert.setInt(1, worker);
                        // The same key twice in the middle of the batch.
                        insert.setInt(2, round * 100 + (failing && n == 15 ? 3 : n));
                        insert.setString(3, UUID.randomUUID().toString());
                        insert.addBatch();
                    }
                    if (failing) {
                        try {
                            insert.executeBatch();
                            throw new AssertionError("the same key twice was accepted");
                        } catch (BatchUpdateException error) {
                            same("SQLSTATE", "23505", error.getSQLState());
                        }
                        connection.rollback();
                    } else {
                        same("updates", 30, Arrays.stream(insert.executeBatch()).sum());
                        connection.commit();
                    }
                }
            }
            same("rows", 90, count(connection, worker));
            connection.rollback();
        });
        try (Connection connection = connect(threshold, "reWriteBatchedInserts", "true");
             PreparedStatement insert = connection.prepareStatement("INSERT INTO " + TABLE + " VALUES (?, ?, ?)")) {
            for (int n = 0; n < 1000; n++) {
                insert.setInt(1, -1);
                insert.setInt(2, n);
                insert.setString(3, "rewritten");
                insert.addBatch();
            }
            insert.executeBatch();
            same("rows", 1000, count(connection, -1));
        }
    }

    static void copy() throws Exception {
        setUp();
        onEach(0, (connection, worker) -> {
            CopyManager copy = connection.unwrap(PGConnection.class).getCopyAPI();
            StringBuilder lines = new StringBuilder();
            for (int n = 0; n < 3000; n++) {
                lines.append(worker).append('\t').append(n).append("\tnote ").append(n).append('\n');
            }
            same("copied in", 3000L, copy.copyIn("COPY " + TABLE + " FROM STDIN", new StringReader(lines.toString())));
            StringWriter got = new StringWriter();
            same("copied out", 3000L, copy.copyOut("COPY (SELECT * FROM " + TABLE + " WHERE worker = " + worker + " ORDER BY n) TO STDOUT", got));
            same("lines", lines.toString(), got.toString());
            fails("22P02", () -> {
                try {
                    copy.copyIn("COPY " + TABLE + " FROM STDIN", new StringReader("rubbish\n"));
                } catch (java.io.IOException error) {
                    throw new SQLException(error);
                }
            });
            echo(connection);
        });
    }

    /** A fetch size inside a transaction makes the driver fetch through a portal of its own. */
    static void cursors(int threshold) throws Exception {
        onEach(threshold, (connection, worker) -> {
            connection.setAutoCommit(false);
            for (int round = 0; round < 8; round++) {
                try (PreparedStatement statement = connection.prepareStatement("SELECT generate_series(1, 95) + ?")) {
                    statement.setFetchSize(10);
                    statement.setInt(1, worker * 1000);
                    ResultSet rows = statement.executeQuery();
                    int next = worker * 1000;
                    while (rows.next()) {
                        same("row", ++next, rows.getInt(1));
                    }
                    same("rows", worker * 1000 + 95, next);
                }
                connection.commit();
            }
        });
    }

    static void cancel() throws Exception {
        onEach(0, (connection, worker) -> {
            try (Statement statement = connection.createStatement()) {
                Thread canceller = new Thread(() -> {
                    try {
                        // The first may come before the query does; then it is meant for nothing.
                        for (int tries = 0; tries < 100; tries++) {
                            Thread.sleep(300);
                            statement.cancel();
                        }
                    } catch (InterruptedException | SQLException over) {
                        // The query has ended.
                    }
                });
                canceller.start();
                fails("57014", () -> statement.execute("SELECT pg_sleep(30)"));
                canceller.interrupt();
                canceller.join();
            }
            echo(connection);
        });
    }

    static void timeouts() throws Exception {
        onEach(0, (connection, worker) -> {
            try (Statement statement = connection.createStatement()) {
                statement.setQueryTimeout(1);
                fails("57014", () -> statement.execute("SELECT pg_sleep(30)"));
            }
            connection.setAutoCommit(false);
            try (Statement statement = connection.createStatement()) {
                statement.execute("SET LOCAL statement_timeout = '100ms'");
                fails("57014", () -> statement.execute("SELECT pg_sleep(10)"));
            }
            connection.rollback();
            echo(connection);
            connection.rollback();
        });
    }

    static void types(int threshold) throws Exception {
        onEach(threshold, (connection, worker) -> {
            UUID uuid = UUID.randomUUID();
            Timestamp day = Timestamp.valueOf("2026-01-02 03:04:05.678");
            for (int round = 0; round < 8; round++) {
                try (PreparedStatement statement = connection.prepareStatement("SELECT ?::int4, ?::int8, ?::numeric, ?::timestamp, ?::bytea, ?::int[], ?::text, ?::bool, ?::float8, ?::uuid")) {
                    statement.setInt(1, 7);
                    statement.setLong(2, 9007199254740993L);
                    statement.setBigDecimal(3, new BigDecimal("1.10"));
                    statement.setTimestamp(4, day);
                    statement.setBytes(5, new byte[] {0, -1});
                    Array array = connection.createArrayOf("int4", new Integer[] {1, 2, 3});
                    statement.setArray(6, array);
                    statement.setString(7, null);
                    statement.setBoolean(8, true);
                    statement.setDouble(9, 0.1);
                    statement.setObject(10, uuid);
                    ResultSet rows = statement.executeQuery();
                    rows.next();
                    same("int4", 7, rows.getInt(1));
                    same("int8", 9007199254740993L, rows.getLong(2));
                    same("numeric", new BigDecimal("1.10"), rows.getBigDecimal(3));
                    same("timestamp", day, rows.getTimestamp(4));
                    same("bytea", new byte[] {0, -1}, rows.getBytes(5));
                    same("array", new Integer[] {1, 2, 3}, rows.getArray(6).getArray());
                    same("null", null, rows.getString(7));
                    same("bool", true, rows.getBoolean(8));
                    same("float8", 0.1, rows.getDouble(9));
                    same("uuid", uuid, rows.getObject(10));
                }
            }
        });
    }

    static void settings() throws Exception {
        onEach(0, (connection, worker) -> {
            connection.setSchema("schema_" + worker);
            connection.setReadOnly(true);
            connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            for (int n = 0; n < 20; n++) {
                try (Statement statement = connection.createStatement()) {
                    ResultSet rows = statement.executeQuery("SELECT current_setting('search_path'), current_setting('default_transaction_isolation')");
                    rows.next();
                    same("search_path", "schema_" + worker, rows.getString(1).replace("\"", ""));
                    same("isolation", "repeatable read", rows.getString(2));
                    fails("25006", () -> statement.execute("CREATE TABLE c_jdbc_never (n int)"));
                }
            }
        // Otherwise the driver says READ ONLY with each transaction only.
        }, "readOnlyMode", "always");
    }

    static void listen() throws Exception {
        onEach(0, (connection, worker) -> {
            try (Statement statement = connection.createStatement()) {
                statement.execute("LISTEN channel_" + worker);
                List<String> expected = new ArrayList<>();
                for (int n = 0; n < 5; n++) {
                    statement.execute("NOTIFY channel_" + worker + ", 'note " + n + "'");
                    expected.add("note " + n);
                }
                List<String> got = new ArrayList<>();
                for (int tries = 0; tries < 100 && got.size() < 5; tries++) {
                    PGNotification[] arrived = connection.unwrap(PGConnection.class).getNotifications(50);
                    for (PGNotification one : arrived == null ? new PGNotification[0] : arrived) {
                        got.add(one.getParameter());
                    }
                }
                same("notifications", expected, got);
            }
        });
    }

    /** Asks for nonces with and without names for the statements, on connections with these properties. */
    static void encrypted(String... properties) throws Exception {
        for (int threshold : new int[] {0, 1}) {
            onEach(threshold, (connection, worker) -> {
                for (int n = 0; n < 20; n++) {
                    echo(connection);
                }
            }, properties);
        }
    }

    /** With these properties connecting fails, and the reason holds these words. */
    static void refused(String words, String... properties) throws Exception {
        try (Connection connection = connect(0, properties)) {
            throw new AssertionError("let in with " + Arrays.toString(properties));
        } catch (SQLException problem) {
            if (!(problem + " " + problem.getCause()).contains(words)) {
                throw problem;
            }
        }
    }

    /** The driver fails rather than to go on in the clear. */
    static void tls() throws Exception {
        encrypted("sslmode", "require");
    }

    static void tlsVerified() throws Exception {
        String there = env("TLS_HOST", ""), ours = env("TLS_CA", ""), others = env("TLS_OTHER_CA", "");
        encrypted("host", there, "sslmode", "verify-full", "sslrootcert", ours);
        refused("PKIX path", "host", there, "sslmode", "verify-full", "sslrootcert", others);
        refused("could not be verified", "sslmode", "verify-full", "sslrootcert", ours);
    }

    static void channelBinding() throws Exception {
        encrypted("sslmode", "require", "channelBinding", "require");
        refused("hannel", "channelBinding", "require");
    }
}
