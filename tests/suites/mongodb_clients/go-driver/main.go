// The Go driver: what an application does with MongoDB, many tasks at once. What a task reads must hold the nonce that it alone wrote, so
// an answer that reached another client is noticed.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/version"
)

const tasks = 8

var (
	ctx      = context.Background()
	balanced = strings.Contains(os.Getenv("OPTIONS"), "loadBalanced=true")
	// What the driver tells of all clients of this program.
	poolsCleared, serversUnknown, heartbeats atomic.Int64
	sessionsHeard                            = map[string][]string{}
	sessionsMutex                            sync.Mutex
)

type thing struct {
	ID    string `bson:"_id"`
	Value string `bson:"value,omitempty"`
	Own   string `bson:"own,omitempty"`
	N     int    `bson:"n"`
	Seen  bool   `bson:"seen,omitempty"`
}

type client struct {
	*mongo.Client
	app *mongo.Database
	own string
	// It is being closed by its user.
	leaving atomic.Bool
}

func connect(pool uint64, own string) *client {
	made := &client{own: own}
	chosen := options.Client().ApplyURI("mongodb://" + os.Getenv("HOST") + ":" + os.Getenv("PORT") + "/?" + os.Getenv("OPTIONS"))
	chosen.SetMaxPoolSize(pool).SetHeartbeatInterval(500 * time.Millisecond).SetServerSelectionTimeout(20 * time.Second)
	chosen.SetPoolMonitor(&event.PoolMonitor{Event: func(told *event.PoolEvent) {
		if told.Type == event.ConnectionPoolCleared && !made.leaving.Load() {
			poolsCleared.Add(1)
		}
	}})
	chosen.SetServerMonitor(&event.ServerMonitor{
		ServerDescriptionChanged: func(told *event.ServerDescriptionChangedEvent) {
			if told.NewDescription.Kind == "Unknown" && told.PreviousDescription.Kind != "Unknown" && !made.leaving.Load() {
				serversUnknown.Add(1)
			}
		},
		ServerHeartbeatSucceeded: func(*event.ServerHeartbeatSucceededEvent) { heartbeats.Add(1) },
	})
	chosen.SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, told *event.CommandStartedEvent) {
		lsid, err := told.Command.LookupErr("lsid")
		if err != nil || !strings.HasPrefix(own, "sessions") {
			return
		}
		sessionsMutex.Lock()
		defer sessionsMutex.Unlock()
		id := string(lsid.Value)
		sessionsHeard[id] = append(sessionsHeard[id], told.CommandName)
	}})
	made.Client = must(mongo.Connect(chosen))
	made.app = made.Database("app")
	return made
}

func (c *client) close() {
	c.leaving.Store(true)
	_ = c.Disconnect(ctx)
}

func nonce() string {
	bytes := make([]byte, 12)
	_, _ = rand.Read(bytes)
	return hex.EncodeToString(bytes)
}

// Panics unless both are the same.
func same(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("%.200s instead of %.200s", fmt.Sprint(got), fmt.Sprint(wanted)))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func one(result *mongo.SingleResult) thing {
	var found thing
	if err := result.Decode(&found); err != nil {
		panic(err)
	}
	return found
}

func all(cursor *mongo.Cursor, err error) []thing {
	found := []thing{}
	if err == nil {
		err = cursor.All(ctx, &found)
	}
	return must(found, err)
}

// `count` documents, numbered, each with an _id of its own.
func numbered(count int, value, own string) []thing {
	made := []thing{}
	for n := range count {
		made = append(made, thing{ID: nonce(), Value: value, Own: own, N: n})
	}
	return made
}

// Does this that many times at once, and panics with the first failure.
func atOnce(count int, work func(number int)) {
	var group sync.WaitGroup
	failures := make(chan any, count)
	for number := range count {
		group.Go(func() {
			defer func() {
				if why := recover(); why != nil {
					failures <- why
				}
			}()
			work(number)
		})
	}
	group.Wait()
	select {
	case why := <-failures:
		panic(why)
	default:
	}
}

func crud(c *client) {
	things, value, other := c.app.Collection("crud"), nonce(), nonce()
	same(must(things.InsertOne(ctx, thing{ID: c.own, Value: value, N: 1})).InsertedID, c.own)
	same(one(things.FindOne(ctx, bson.M{"_id": c.own})), thing{ID: c.own, Value: value, N: 1})
	same(must(things.UpdateOne(ctx, bson.M{"value": value}, bson.M{"$inc": bson.M{"n": 6}})).ModifiedCount, int64(1))
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	changed := things.FindOneAndUpdate(ctx, bson.M{"value": value}, bson.M{"$set": bson.M{"seen": true}}, after)
	same(one(changed), thing{ID: c.own, Value: value, N: 7, Seen: true})
	replaced := must(things.ReplaceOne(ctx, bson.M{"_id": other}, bson.M{"value": value}, options.Replace().SetUpsert(true)))
	same(replaced.UpsertedID, other)
	same(must(things.CountDocuments(ctx, bson.M{"value": value})), int64(2))
	var values []string
	_ = must(0, things.Distinct(ctx, "value", bson.M{"_id": c.own}).Decode(&values))
	same(values, []string{value})
	same(must(things.DeleteMany(ctx, bson.M{"value": value})).DeletedCount, int64(2))
	same(errors.Is(things.FindOne(ctx, bson.M{"value": value}).Err(), mongo.ErrNoDocuments), true)
}

func bulk(c *client) {
	things, given := c.app.Collection("bulk"), numbered(100, "", c.own)
	for _, ordered := range []bool{true, false} {
		chosen := options.BulkWrite().SetOrdered(ordered)
		var first, second, third []mongo.WriteModel
		for _, each := range given {
			first = append(first, mongo.NewInsertOneModel().SetDocument(each))
		}
		same(must(things.BulkWrite(ctx, first, chosen)).InsertedCount, int64(100))
		for _, each := range given[:20] {
			change := bson.M{"$set": bson.M{"n": -1}}
			second = append(second, mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": each.ID}).SetUpdate(change))
		}
		other := nonce()
		second = append(second, mongo.NewReplaceOneModel().SetFilter(bson.M{"_id": other}).SetReplacement(bson.M{"own": c.own}).SetUpsert(true))
		for _, each := range given[20:50] {
			second = append(second, mongo.NewDeleteOneModel().SetFilter(bson.M{"_id": each.ID}))
		}
		done := must(things.BulkWrite(ctx, second, chosen))
		same([]int64{done.ModifiedCount, done.DeletedCount, done.UpsertedCount}, []int64{20, 30, 1})
		for _, id := range done.UpsertedIDs {
			same(id, other)
		}
		fresh := numbered(3, "", c.own)
		for _, each := range []thing{fresh[0], given[0], fresh[1], given[1], fresh[2]} {
			third = append(third, mongo.NewInsertOneModel().SetDocument(each))
		}
		_, err := things.BulkWrite(ctx, third, chosen)
		var failed mongo.BulkWriteException
		same(errors.As(err, &failed), true)
		found, wanted, left := []int{}, []int{1, 11000, 3, 11000}, append([]thing{{ID: other}}, fresh...)
		if ordered {
			wanted, left = wanted[:2], left[:2]
		}
		for _, each := range failed.WriteErrors {
			found = append(found, each.Index, each.Code)
		}
		same(found, wanted)
		left = append(append(left, given[:20]...), given[50:]...)
		same(ids(all(things.Find(ctx, bson.M{"own": c.own}))), ids(left))
		must(things.DeleteMany(ctx, bson.M{"own": c.own}))
	}
}

func ids(things []thing) []string {
	found := []string{}
	for _, each := range things {
		found = append(found, each.ID)
	}
	slices.Sort(found)
	return found
}

func cursors(*client) {
	for _, pool := range []int{1, 10, 100} {
		// A driver in front of a balancer keeps a connection for each open cursor.
		count := 200
		if balanced {
			count = pool
		}
		c := connect(uint64(pool), "cursors")
		var opened sync.WaitGroup
		opened.Add(count)
		atOnce(count, func(number int) {
			var cursor *mongo.Cursor
			things, value := c.app.Collection(fmt.Sprint("cursors", number)), nonce()
			given := numbered(12, value, "")
			func() {
				defer opened.Done()
				must(things.InsertMany(ctx, given))
				cursor = must(things.Find(ctx, bson.M{"value": value}, options.Find().SetBatchSize(3).SetSort(bson.M{"n": 1})))
				same(cursor.Next(ctx), true)
			}()
			opened.Wait()
			found := []thing{}
			for more := true; more; more = cursor.Next(ctx) {
				var next thing
				_ = must(0, cursor.Decode(&next))
				found = append(found, next)
			}
			_ = must(0, cursor.Err())
			same(found, given)
		})
		c.close()
	}
}

func aggregations(c *client) {
	things, value := c.app.Collection("aggregations"), nonce()
	given := numbered(120, value, c.own)
	must(things.InsertMany(ctx, given))
	slices.Reverse(given)
	match := bson.D{{Key: "$match", Value: bson.M{"own": c.own}}}
	for range 3 {
		ordered := mongo.Pipeline{match, {{Key: "$sort", Value: bson.M{"n": -1}}}, {{Key: "$skip", Value: 20}}}
		same(all(things.Aggregate(ctx, ordered, options.Aggregate().SetBatchSize(6))), given[20:])
		group := bson.D{{Key: "$group", Value: bson.M{"_id": "$value", "n": bson.M{"$sum": "$n"}}}}
		same(all(things.Aggregate(ctx, mongo.Pipeline{match, group})), []thing{{ID: value, N: 119 * 60}})
	}
}

func sessions(c *client) {
	things, value := c.app.Collection("sessions"), nonce()
	session, other := must(c.StartSession(options.Session().SetCausalConsistency(true))), must(c.StartSession())
	in, inOther := mongo.NewSessionContext(ctx, session), mongo.NewSessionContext(ctx, other)
	must(things.InsertOne(in, thing{ID: c.own, Value: value}))
	for n := range 10 {
		must(things.UpdateOne(in, bson.M{"_id": c.own}, bson.M{"$set": bson.M{"n": n}}))
		same(one(things.FindOne(in, bson.M{"_id": c.own})), thing{ID: c.own, Value: value, N: n})
		same(one(things.FindOne(inOther, bson.M{"value": value})), thing{ID: c.own, Value: value, N: n})
	}
	given := numbered(40, value, c.own)
	must(things.InsertMany(in, given))
	cursor, found := must(things.Find(in, bson.M{"own": c.own}, options.Find().SetBatchSize(3).SetSort(bson.M{"n": 1}))), []thing{}
	_ = must(0, cursor.All(in, &found))
	same(found, given)
	sessionsMutex.Lock()
	kinds := [][]string{slices.Clone(sessionsHeard[string(session.ID())]), slices.Clone(sessionsHeard[string(other.ID())])}
	sessionsMutex.Unlock()
	same(slices.Contains(kinds[0], "getMore"), true)
	for i := range kinds {
		kinds[i] = slices.DeleteFunc(kinds[i], func(kind string) bool { return kind != "find" })
	}
	same([]int{len(kinds[0]), len(kinds[1])}, []int{11, 10})
	session.EndSession(ctx)
	other.EndSession(ctx)
}

func large(c *client) {
	things := c.app.Collection("large")
	size := []int{4, 6, 8, 10, 12, 15}[c.own[len(c.own)-1]-'0'] * 1_000_000
	text := strings.Repeat(nonce(), 700_000)[:size]
	must(things.InsertOne(ctx, thing{ID: c.own, Value: text}))
	same(one(things.FindOne(ctx, bson.M{"_id": c.own})).Value == text, true)
	must(things.InsertMany(ctx, numbered(2, text[:4_000_000], c.own)))
	found := all(things.Find(ctx, bson.M{"own": c.own}))
	same(len(found) == 2 && found[0].Value == text[:4_000_000] && found[1].Value == text[:4_000_000], true)
}

func failing(c *client) {
	things := c.app.Collection("errors")
	for range 5 {
		value := nonce()
		must(things.InsertOne(ctx, thing{ID: value, Own: c.own}))
		_, err := things.InsertOne(ctx, thing{ID: value})
		var written mongo.WriteException
		same(errors.As(err, &written) && mongo.IsDuplicateKeyError(err) && written.HasErrorCode(11000), true)
		var failed mongo.CommandError
		err = c.app.RunCommand(ctx, bson.M{"no" + value: 1}).Err()
		same(errors.As(err, &failed) && failed.Code == 59 && strings.Contains(failed.Message, value), true)
		err = things.FindOne(ctx, bson.M{"$no" + value: 1}).Err()
		same(errors.As(err, &failed) && strings.Contains(failed.Message, value), true)
		same(one(things.FindOne(ctx, bson.M{"_id": value})), thing{ID: value, Own: c.own})
	}
}

func hundreds(*client) {
	clients := []*client{connect(100, "hundreds"), connect(100, "hundreds"), connect(100, "hundreds")}
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	atOnce(300, func(number int) {
		things := clients[number%3].app.Collection("hundreds")
		for n := range 3 {
			given := thing{ID: nonce(), Value: nonce()}
			must(things.InsertOne(ctx, given))
			same(one(things.FindOne(ctx, bson.M{"_id": given.ID})), given)
			changed := things.FindOneAndUpdate(ctx, bson.M{"_id": given.ID}, bson.M{"$set": bson.M{"n": n}}, after)
			same(one(changed), thing{ID: given.ID, Value: given.Value, N: n})
		}
	})
	same(must(clients[0].app.Collection("hundreds").CountDocuments(ctx, bson.M{})), int64(900))
	for _, c := range clients {
		c.close()
	}
}

func monitoring(c *client) {
	before := heartbeats.Load()
	things := c.app.Collection("monitoring", options.Collection().SetReadPreference(readpref.SecondaryPreferred()))
	for range 2 {
		given := thing{ID: nonce(), Own: c.own}
		must(things.InsertOne(ctx, given))
		same(one(things.FindOne(ctx, bson.M{"_id": given.ID})), given)
		time.Sleep(2 * time.Second)
	}
	// Nobody watches a balancer.
	same(heartbeats.Load() > before+2, !balanced)
}

var checks = []struct {
	name string
	// How many clients do it at once; 0: it makes clients itself.
	clients int
	run     func(*client)
}{
	{"crud", tasks, crud}, {"bulk", tasks, bulk}, {"cursors", 0, cursors}, {"aggregations", tasks, aggregations}, {"sessions", tasks, sessions},
	{"large", 6, large}, {"errors", tasks, failing}, {"hundreds", 0, hundreds}, {"monitoring", tasks, monitoring},
}

// Why it failed; nil if it did not.
func failure(name string, clients int, run func(*client)) (why any) {
	defer func() { why = recover() }()
	if clients == 0 {
		run(nil)
	} else {
		atOnce(clients, func(number int) {
			c := connect(4, fmt.Sprintf("%s:%d", name, number))
			defer c.close()
			run(c)
		})
	}
	same([]int64{poolsCleared.Load(), serversUnknown.Load()}, []int64{0, 0})
	return nil
}

func main() {
	fmt.Println("version", version.Driver)
	for _, check := range checks {
		if why := failure(check.name, check.clients, check.run); why != nil {
			fmt.Printf("failed %s: %.300s\n", check.name, strings.Join(strings.Fields(fmt.Sprint(why)), " "))
		} else {
			fmt.Println("ok", check.name)
		}
	}
}
