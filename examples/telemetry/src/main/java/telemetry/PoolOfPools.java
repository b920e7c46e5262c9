package telemetry;

import com.mongodb.client.MongoClient;
import java.time.Duration;
import org.apache.commons.pool2.BaseKeyedPooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import org.apache.commons.pool2.impl.GenericKeyedObjectPool;
import org.apache.commons.pool2.impl.GenericKeyedObjectPoolConfig;

/**
 * The connector of a framework that pools everything it connects to, by its address: here what it pools are MongoClients, each of which
 * has a pool of its own. Do not do this. It is here to show what it costs.
 */
final class PoolOfPools implements Clients {
    private final GenericKeyedObjectPool<String, MongoClient> pool;
    private final String key;

    PoolOfPools(DriverSettings settings, int most) {
        GenericKeyedObjectPoolConfig<MongoClient> config = new GenericKeyedObjectPoolConfig<>();
        config.setMaxTotalPerKey(most);
        config.setMaxIdlePerKey(most);
        config.setMaxTotal(-1);
        config.setMaxWait(Duration.ofSeconds(120));
        pool = new GenericKeyedObjectPool<>(new Drivers(settings), config);
        key = String.join(",", settings.url().getHosts());
    }

    @Override
    public <T> T use(Work<T> work) throws Exception {
        MongoClient client = pool.borrowObject(key);
        try {
            return work.with(client);
        } finally {
            pool.returnObject(key, client);
        }
    }

    @Override
    public void close() {
        pool.close();
    }

    private static final class Drivers extends BaseKeyedPooledObjectFactory<String, MongoClient> {
        private final DriverSettings settings;

        Drivers(DriverSettings settings) {
            this.settings = settings;
        }

        @Override
        public MongoClient create(String key) {
            return settings.newClient();
        }

        @Override
        public PooledObject<MongoClient> wrap(MongoClient client) {
            return new DefaultPooledObject<>(client);
        }

        @Override
        public void destroyObject(String key, PooledObject<MongoClient> pooled) {
            pooled.getObject().close();
        }
    }
}
