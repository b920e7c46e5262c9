package telemetry;

import com.mongodb.ConnectionString;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.Executors;

/**
 * An HTTP service that takes readings of sensors and keeps them in MongoDB.
 *
 * <pre>
 * Telemetry [--port N] [--mongodb URL] [--threads N] [--maintenance-ms N] [--pool-of-pools [--drivers N]]
 * </pre>
 *
 * PORT and MONGODB_URL in the environment are the defaults of the first two. What stands behind the `?` of the URL are the driver's own
 * settings: maxPoolSize, minPoolSize, maxIdleTimeMS, waitQueueTimeoutMS and so on.
 */
public final class Telemetry {
    public static void main(String[] arguments) throws Exception {
        List<String> given = List.of(arguments);
        int port = Integer.parseInt(option(given, "--port", System.getenv().getOrDefault("PORT", "8080")));
        String url = option(given, "--mongodb", System.getenv().getOrDefault("MONGODB_URL", "mongodb://127.0.0.1:27017/telemetry"));
        int threads = Integer.parseInt(option(given, "--threads", "1000"));
        // How often the driver's pool closes what was idle for too long, and fills up to minPoolSize. No option of the URL says so.
        int maintenance = Integer.parseInt(option(given, "--maintenance-ms", "60000"));

        // Without the first of these an answer waits for the client's delayed acknowledgement: 40 ms.
        System.setProperty("sun.net.httpserver.nodelay", "true");
        System.setProperty("sun.net.httpserver.maxIdleConnections", "10000");
        System.setProperty("sun.net.httpserver.idleInterval", "600");

        PoolEvents events = new PoolEvents();
        DriverSettings settings = new DriverSettings(new ConnectionString(url), maintenance, events);
        Clients clients = given.contains("--pool-of-pools")
            ? new PoolOfPools(settings, Integer.parseInt(option(given, "--drivers", "50")))
            : new SharedClient(settings);

        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 1024);
        server.setExecutor(Executors.newFixedThreadPool(threads));
        server.createContext("/readings", new Readings(clients, settings.database()));
        server.createContext("/pool", events);
        server.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            server.stop(1);
            clients.close();
        }));
        System.out.println("listening on 127.0.0.1:" + port);
    }

    private static String option(List<String> given, String name, String otherwise) {
        int at = given.indexOf(name);
        return at < 0 || at + 1 == given.size() ? otherwise : given.get(at + 1);
    }
}
