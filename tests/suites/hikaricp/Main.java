import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import com.zaxxer.hikari.metrics.prometheus.PrometheusMetricsTrackerFactory;
import io.micrometer.core.instrument.binder.system.UptimeMetrics;
import io.micrometer.prometheusmetrics.PrometheusConfig;
import io.micrometer.prometheusmetrics.PrometheusMeterRegistry;
import io.prometheus.client.CollectorRegistry;
import io.prometheus.client.exporter.common.TextFormat;
import java.io.IOException;
import java.io.StringWriter;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * An application with pools of HikariCP, which shows their metrics: at /metrics as Micrometer gives them, at /own as HikariCP's own tracker does.
 *
 * <pre>
 * Main [--application NAME] --pool NAME [FLAG VALUE]... [--pool NAME [FLAG VALUE]...]...
 *   --size N --minimum-idle N --connection-timeout MS --idle-timeout MS --max-lifetime MS   HikariCP's own settings
 *   --port N             where the database is; else PGPORT
 *   --hold MS            for how long the database works each time; 0: as short as can be
 *   --alone yes          it works for one of the pool's connections at a time: the more there are, the longer each takes
 *   --pause MS           how long a thread does something else between two times
 *   --threads N[,N@MS]…  how many ask, and how many from that time on
 *   --burst MS --every MS  they ask for so long, and again after that time
 *   --leak N             so many connections are taken at first, and never given back
 *   --leak-every MS      they are taken one after the other instead, so long apart
 *   --tracker own        HikariCP's own, not Micrometer's
 * </pre>
 *
 * Who logs in to what is in PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE. It says "ready PORT" when time begins, and ends with its input.
 */
public class Main {
    /** How soon a thread sees that it is its turn. */
    static final long NAP_MS = 5;
    /** Who was refused does not ask again at once. */
    static final long REFUSED_MS = 50;
    /** HikariCP takes nothing shorter at its start, and falls back to its defaults; while it runs it takes anything. */
    static final Map<String, Long> FLOORS = Map.of("idle-timeout", 10_000L, "max-lifetime", 30_000L);

    /** What the command line says of a pool. */
    record Wishes(String name, int number, Map<String, String> flags) {
        String text(String flag, String otherwise) {
            return flags.getOrDefault(flag, otherwise);
        }

        long number(String flag, long otherwise) {
            return Long.parseLong(text(flag, String.valueOf(otherwise)));
        }

        /** It is set, and HikariCP takes it at its start. */
        boolean isPlain(String flag) {
            return flags.containsKey(flag) && number(flag, 0) >= FLOORS.get(flag);
        }

        boolean isShort(String flag) {
            return flags.containsKey(flag) && number(flag, 0) < FLOORS.get(flag);
        }

        String sql() {
            long hold = number("hold", 0);
            if (hold == 0) {
                return "SELECT 1";
            }
            String work = "pg_sleep(" + hold / 1e3 + ")";
            return flags.containsKey("alone") ? "SELECT pg_advisory_xact_lock(" + number + "), " + work : "SELECT " + work;
        }

        /** How many threads ask at a time, in ms from the beginning. */
        int threadsAt(long at) {
            int threads = 0;
            for (String stage : text("threads", "0").split(",")) {
                String[] parts = stage.split("@");
                if (parts.length == 1 || at >= Long.parseLong(parts[1])) {
                    threads = Integer.parseInt(parts[0]);
                }
            }
            return threads;
        }

        int mostThreads() {
            int most = 0;
            for (String stage : text("threads", "0").split(",")) {
                most = Math.max(most, Integer.parseInt(stage.split("@")[0]));
            }
            return most;
        }

        boolean asksAt(long at) {
            return !flags.containsKey("burst") || at % number("every", 1_000) < number("burst", 0);
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrometheusMeterRegistry registry = new PrometheusMeterRegistry(PrometheusConfig.DEFAULT);
        CollectorRegistry own = new CollectorRegistry();
        List<Wishes> wishes = new ArrayList<>();
        for (int at = 0; at + 1 < arguments.length; at += 2) {
            String flag = arguments[at].substring(2), value = arguments[at + 1];
            switch (flag) {
                case "application" -> registry.config().commonTags("application", value);
                case "pool" -> wishes.add(new Wishes(value, wishes.size() + 1, new HashMap<>()));
                default -> wishes.get(wishes.size() - 1).flags().put(flag, value);
            }
        }
        new UptimeMetrics().bindTo(registry);
        List<HikariDataSource> pools = new ArrayList<>();
        List<Connection> leaked = Collections.synchronizedList(new ArrayList<>());
        for (Wishes wish : wishes) {
            HikariDataSource pool = new HikariDataSource(config(wish, registry, own));
            pools.add(pool);
            shorten(pool, wish);
            for (long n = 0; n < wish.number("leak", 0) && !wish.flags().containsKey("leak-every"); n++) {
                leaked.add(pool.getConnection());
            }
        }
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.createContext("/metrics", exchange -> {
            boolean isOpen = String.valueOf(exchange.getRequestHeaders().getFirst("Accept")).contains("openmetrics");
            String type = isOpen ? "application/openmetrics-text; version=1.0.0; charset=utf-8" : "text/plain; version=0.0.4; charset=utf-8";
            answer(exchange, type, registry.scrape(type));
        });
        server.createContext("/own", exchange -> {
            StringWriter text = new StringWriter();
            TextFormat.write004(text, own.metricFamilySamples());
            answer(exchange, TextFormat.CONTENT_TYPE_004, text.toString());
        });
        server.start();
        long began = System.nanoTime();
        for (int n = 0; n < pools.size(); n++) {
            Wishes wish = wishes.get(n);
            for (int index = 0; index < wish.mostThreads(); index++) {
                start(wish, pools.get(n), index, began);
            }
            if (wish.flags().containsKey("leak-every")) {
                forget(wish, pools.get(n), leaked);
            }
        }
        System.out.println("ready " + server.getAddress().getPort());
        while (System.in.read() >= 0) {
        }
        System.exit(0);
    }

    static HikariConfig config(Wishes wish, PrometheusMeterRegistry registry, CollectorRegistry own) {
        Map<String, String> environment = System.getenv();
        HikariConfig config = new HikariConfig();
        config.setPoolName(wish.name());
        String port = wish.text("port", environment.get("PGPORT"));
        config.setJdbcUrl("jdbc:postgresql://" + environment.get("PGHOST") + ":" + port + "/" + environment.get("PGDATABASE") + "?sslmode=disable");
        config.setUsername(environment.get("PGUSER"));
        config.setPassword(environment.get("PGPASSWORD"));
        config.setMaximumPoolSize((int) wish.number("size", 10));
        config.setMinimumIdle((int) wish.number("minimum-idle", wish.number("size", 10)));
        config.setConnectionTimeout(wish.number("connection-timeout", 30_000));
        if (wish.isPlain("idle-timeout")) {
            config.setIdleTimeout(wish.number("idle-timeout", 0));
        }
        if (wish.isPlain("max-lifetime")) {
            config.setMaxLifetime(wish.number("max-lifetime", 0));
        }
        if (wish.text("tracker", "").equals("own")) {
            config.setMetricsTrackerFactory(new PrometheusMetricsTrackerFactory(own));
        } else {
            config.setMetricRegistry(registry);
        }
        return config;
    }

    /** Sets what is shorter than HikariCP takes at its start; connections that it has already made go. */
    static void shorten(HikariDataSource pool, Wishes wish) {
        if (wish.isShort("idle-timeout")) {
            pool.getHikariConfigMXBean().setIdleTimeout(wish.number("idle-timeout", 0));
        }
        if (wish.isShort("max-lifetime")) {
            pool.getHikariConfigMXBean().setMaxLifetime(wish.number("max-lifetime", 0));
            pool.getHikariPoolMXBean().softEvictConnections();
        }
    }

    static void answer(HttpExchange exchange, String type, String text) throws IOException {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().set("Content-Type", type);
        exchange.sendResponseHeaders(200, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    /** A thread that takes connections one after the other, and gives none back. */
    static void forget(Wishes wish, HikariDataSource pool, List<Connection> leaked) {
        Thread thread = new Thread(() -> {
            try {
                for (long n = 0; n < wish.number("leak", 0); n++) {
                    Thread.sleep(wish.number("leak-every", 0));
                    leaked.add(pool.getConnection());
                }
            } catch (InterruptedException | SQLException over) {
                // It ends.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** The thread of this number among those of a pool. */
    static void start(Wishes wish, HikariDataSource pool, int index, long began) {
        String sql = wish.sql();
        long pause = wish.number("pause", 0);
        Thread thread = new Thread(() -> {
            try {
                while (true) {
                    long at = (System.nanoTime() - began) / 1_000_000;
                    if (index >= wish.threadsAt(at) || !wish.asksAt(at)) {
                        Thread.sleep(NAP_MS);
                        continue;
                    }
                    try (Connection connection = pool.getConnection(); Statement statement = connection.createStatement()) {
                        statement.execute(sql);
                    } catch (SQLException refused) {
                        Thread.sleep(REFUSED_MS);
                    }
                    Thread.sleep(pause);
                }
            } catch (InterruptedException over) {
                // It ends.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
