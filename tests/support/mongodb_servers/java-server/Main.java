import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.net.InetSocketAddress;

/** Serves in memory at a port of this machine until its standard input ends. A second argument "oplog" gives it change streams. */
public class Main {
    public static void main(String[] arguments) throws Exception {
        MongoServer server = new MongoServer(new MemoryBackend());
        if (arguments.length > 1 && arguments[1].equals("oplog")) {
            server.enableOplog();
        }
        server.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        server.shutdownNow();
    }
}
