package telemetry;

import com.mongodb.MongoException;
import com.mongodb.MongoTimeoutException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.ReplaceOptions;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpHandler;
import java.io.IOException;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.stream.Collectors;
import org.bson.BSONException;
import org.bson.Document;
import org.bson.json.JsonParseException;

/**
 * POST /readings with a reading in JSON: 201 once MongoDB has acknowledged it. PUT the same with an _id: in place of the reading that has
 * it. GET /readings?sensor=X: the readings of a sensor.
 */
final class Readings implements HttpHandler {
    private static final int MAX_BODY = 65_536;
    private static final int MAX_FOUND = 100;

    private final Clients clients;
    private final String database;

    Readings(Clients clients, String database) {
        this.clients = clients;
        this.database = database;
    }

    @Override
    public void handle(HttpExchange exchange) throws IOException {
        Answer answer;
        try {
            answer = switch (exchange.getRequestMethod()) {
                case "POST" -> insert(reading(exchange));
                case "PUT" -> replace(reading(exchange));
                case "GET" -> find(sensor(exchange));
                default -> new Answer(405, problem("POST, PUT or GET"));
            };
        } catch (BadRequest wrong) {
            answer = new Answer(400, problem(wrong.getMessage()));
        } catch (MongoTimeoutException late) {
            // The pool had no connection in time, or there was no server.
            answer = new Answer(503, problem(late.getMessage()));
        } catch (MongoException failed) {
            answer = new Answer(500, problem(failed.getMessage()));
        } catch (Exception failed) {
            answer = new Answer(500, problem(failed.toString()));
        }
        answer.send(exchange);
    }

    private Answer insert(Document reading) throws Exception {
        clients.use(client -> readings(client).insertOne(reading));
        return new Answer(201, new Document("_id", reading.get("_id")).toJson());
    }

    private Answer replace(Document reading) throws Exception {
        if (!reading.containsKey("_id")) {
            throw new BadRequest("a reading that replaces another needs its _id");
        }
        clients.use(client -> readings(client)
            .replaceOne(Filters.eq("_id", reading.get("_id")), reading, new ReplaceOptions().upsert(true)));
        return new Answer(200, new Document("_id", reading.get("_id")).toJson());
    }

    private Answer find(String sensor) throws Exception {
        List<Document> found = clients.use(client -> readings(client)
            .find(Filters.eq("sensor", sensor)).limit(MAX_FOUND).into(new ArrayList<>()));
        return new Answer(200, found.stream().map(Document::toJson).collect(Collectors.joining(",", "[", "]")));
    }

    private MongoCollection<Document> readings(MongoClient client) {
        return client.getDatabase(database).getCollection("readings");
    }

    private static Document reading(HttpExchange exchange) throws IOException {
        byte[] body = exchange.getRequestBody().readNBytes(MAX_BODY + 1);
        if (body.length > MAX_BODY) {
            throw new BadRequest("a reading has at most " + MAX_BODY + " bytes");
        }
        Document reading;
        try {
            reading = Document.parse(new String(body, StandardCharsets.UTF_8));
        } catch (BSONException | JsonParseException malformed) {
            throw new BadRequest("not a document in JSON: " + malformed.getMessage());
        }
        if (!(reading.get("sensor") instanceof String sensor) || sensor.isEmpty()) {
            throw new BadRequest("a reading needs its sensor");
        }
        reading.putIfAbsent("at", new Date());
        return reading;
    }

    private static String sensor(HttpExchange exchange) {
        String query = exchange.getRequestURI().getRawQuery();
        if (query == null || !query.startsWith("sensor=")) {
            throw new BadRequest("which sensor? /readings?sensor=X");
        }
        return URLDecoder.decode(query.substring("sensor=".length()), StandardCharsets.UTF_8);
    }

    private static String problem(String text) {
        return new Document("error", text).toJson();
    }

    /** The client's mistake. */
    private static final class BadRequest extends RuntimeException {
        BadRequest(String what) {
            super(what);
        }
    }

    record Answer(int status, String json) {
        void send(HttpExchange exchange) throws IOException {
            byte[] body = json.getBytes(StandardCharsets.UTF_8);
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            boolean head = exchange.getRequestMethod().equals("HEAD");
            exchange.sendResponseHeaders(status, head ? -1 : body.length);
            if (!head) {
                exchange.getResponseBody().write(body);
            }
            exchange.close();
        }
    }
}
