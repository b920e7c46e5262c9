package telemetry;

import com.mongodb.event.ConnectionCheckOutFailedEvent;
import com.mongodb.event.ConnectionCheckedInEvent;
import com.mongodb.event.ConnectionCheckedOutEvent;
import com.mongodb.event.ConnectionClosedEvent;
import com.mongodb.event.ConnectionCreatedEvent;
import com.mongodb.event.ConnectionPoolClearedEvent;
import com.mongodb.event.ConnectionPoolListener;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.LongAdder;
import org.bson.Document;

/** Counts what the driver's pools do, and shows it at /pool: check-outs that failed, by reason, are what an alert belongs on. */
final class PoolEvents implements ConnectionPoolListener, HttpHandler {
    private final LongAdder created = new LongAdder();
    private final LongAdder checkedOut = new LongAdder();
    private final LongAdder checkedIn = new LongAdder();
    private final LongAdder cleared = new LongAdder();
    private final Map<String, LongAdder> closed = new ConcurrentHashMap<>();
    private final Map<String, LongAdder> failed = new ConcurrentHashMap<>();

    @Override
    public void connectionCreated(ConnectionCreatedEvent event) {
        created.increment();
    }

    @Override
    public void connectionClosed(ConnectionClosedEvent event) {
        count(closed, event.getReason());
    }

    @Override
    public void connectionCheckedOut(ConnectionCheckedOutEvent event) {
        checkedOut.increment();
    }

    @Override
    public void connectionCheckedIn(ConnectionCheckedInEvent event) {
        checkedIn.increment();
    }

    @Override
    public void connectionCheckOutFailed(ConnectionCheckOutFailedEvent event) {
        count(failed, event.getReason());
    }

    @Override
    public void connectionPoolCleared(ConnectionPoolClearedEvent event) {
        cleared.increment();
    }

    @Override
    public void handle(HttpExchange exchange) throws IOException {
        Document counts = new Document("created", created.sum()).append("closed", sums(closed))
            .append("check_outs", checkedOut.sum()).append("in_use", checkedOut.sum() - checkedIn.sum())
            .append("failed_check_outs", sums(failed)).append("cleared", cleared.sum());
        new Readings.Answer(200, counts.toJson()).send(exchange);
    }

    private static void count(Map<String, LongAdder> counts, Enum<?> reason) {
        counts.computeIfAbsent(reason.name().toLowerCase(), name -> new LongAdder()).increment();
    }

    private static Document sums(Map<String, LongAdder> counts) {
        Document sums = new Document();
        new TreeMap<>(counts).forEach((reason, count) -> sums.append(reason, count.sum()));
        return sums;
    }
}
