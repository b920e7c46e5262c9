import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.net.InetSocketAddress;

/** Serves in memory at a port of this machine until its standard input ends. */
public class Main {
    public static void main(String[] arguments) throws Exception {
        MongoServer server = new MongoServer(new MemoryBackend());
        server.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0])));
        System.out.println("ready");
        while (System.in.read() >= 0) {
        }
        server.shutdownNow();
    }
}
