package telemetry;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.util.concurrent.TimeUnit;

/** Makes MongoClients: all that can be set is in the URL, but for what no URL can say. */
record DriverSettings(ConnectionString url, int maintenanceMillis, PoolEvents events) {
    MongoClient newClient() {
        MongoClientSettings.Builder settings = MongoClientSettings.builder()
            .applyConnectionString(url)
            .applicationName("telemetry")
            .applyToConnectionPoolSettings(pool -> pool
                .maintenanceFrequency(maintenanceMillis, TimeUnit.MILLISECONDS)
                .addConnectionPoolListener(events));
        if (url.getWriteConcern() == null) {
            settings.writeConcern(WriteConcern.ACKNOWLEDGED);
        }
        return MongoClients.create(settings.build());
    }

    String database() {
        return url.getDatabase() == null ? "telemetry" : url.getDatabase();
    }
}
