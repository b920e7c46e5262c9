package telemetry;

import com.mongodb.client.MongoClient;

/** One MongoClient for the whole process, as the driver's manual says. */
final class SharedClient implements Clients {
    private final MongoClient client;

    SharedClient(DriverSettings settings) {
        client = settings.newClient();
    }

    @Override
    public <T> T use(Work<T> work) {
        return work.with(client);
    }

    @Override
    public void close() {
        client.close();
    }
}
