package telemetry;

import com.mongodb.client.MongoClient;

/** Where a request gets its MongoClient from. */
interface Clients extends AutoCloseable {
    /** What a request does with MongoDB. */
    interface Work<T> {
        T with(MongoClient client);
    }

    <T> T use(Work<T> work) throws Exception;

    @Override
    void close();
}
