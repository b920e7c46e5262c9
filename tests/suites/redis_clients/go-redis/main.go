// go-redis: what an application does with Redis, on several connections at once; each value holds what only its connection knows.
package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const connections = 8

var ctx = context.Background()

func connect(database int, name string) *redis.Client {
	version, _ := strconv.Atoi(os.Getenv("RESP"))
	return redis.NewClient(&redis.Options{
		Addr: os.Getenv("HOST") + ":" + os.Getenv("PORT"), Protocol: version, PoolSize: 3, MaxRetries: -1, DB: database, ClientName: name,
	})
}

func nonce() string {
	bytes := make([]byte, 12)
	_, _ = rand.Read(bytes)
	return hex.EncodeToString(bytes)
}

// Panics unless both are the same.
func same(got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		panic(fmt.Sprintf("%v instead of %v", got, wanted))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

var checks = []struct {
	name string
	run  func(r *redis.Client, own string)
}{
	{"types", types}, {"pipelines", pipelines}, {"transactions", transactions}, {"watching", watching}, {"blocking", blocking},
	{"subscriptions", subscriptions}, {"scanning", scanning}, {"scripts", scripts}, {"large", large}, {"streams", streams},
	{"databases", databases}, {"errors", failing},
}

func types(r *redis.Client, own string) {
	value := nonce()
	same(must(r.Set(ctx, own, value, 0).Result()), "OK")
	same(must(r.Get(ctx, own).Result()), value)
	same(must(r.IncrBy(ctx, own+":n", 7).Result()), int64(7))
	must(r.HSet(ctx, own+":h", "a", value, "b", 2).Result())
	same(must(r.HGetAll(ctx, own+":h").Result()), map[string]string{"a": value, "b": "2"})
	must(r.RPush(ctx, own+":l", value, "x").Result())
	same(must(r.LRange(ctx, own+":l", 0, -1).Result()), []string{value, "x"})
	must(r.ZAdd(ctx, own+":z", redis.Z{Score: 1.5, Member: value}).Result())
	same(must(r.ZScore(ctx, own+":z", value).Result()), 1.5)
	_, err := r.Get(ctx, own+":none").Result()
	same(errors.Is(err, redis.Nil), true)
}

func pipelines(r *redis.Client, own string) {
	pipe, values := r.Pipeline(), []string{}
	read := []*redis.StringCmd{}
	for i := range 500 {
		values = append(values, nonce())
		pipe.Set(ctx, fmt.Sprint(own, i), values[i], 0)
		read = append(read, pipe.Get(ctx, fmt.Sprint(own, i)))
	}
	must(pipe.Exec(ctx))
	for i, reply := range read {
		same(reply.Val(), values[i])
	}
}

func transactions(r *redis.Client, own string) {
	for i := 1; i <= 20; i++ {
		var count *redis.IntCmd
		var value *redis.StringCmd
		must(r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			count, value = pipe.Incr(ctx, own), pipe.Get(ctx, own)
			return nil
		}))
		same(count.Val(), int64(i))
		same(value.Val(), strconv.Itoa(i))
	}
}

func watching(r *redis.Client, own string) {
	err := r.Watch(ctx, func(tx *redis.Tx) error {
		other := connect(0, "")
		defer other.Close()
		must(other.Set(ctx, own, "other", 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Set(ctx, own, "mine", 0).Err() })
		return err
	}, own)
	same(errors.Is(err, redis.TxFailedErr), true)
	same(must(r.Get(ctx, own).Result()), "other")
}

func blocking(r *redis.Client, own string) {
	value, popped := nonce(), make(chan []string)
	go func() { popped <- r.BLPop(ctx, 10*time.Second, own).Val() }()
	must(r.RPush(ctx, own, value).Result())
	same(<-popped, []string{own, value})
}

func subscriptions(r *redis.Client, own string) {
	listener, value := r.Subscribe(ctx, own), nonce()
	defer listener.Close()
	must(listener.Receive(ctx))
	same(must(r.Publish(ctx, own, value).Result()), int64(1))
	message := must(listener.ReceiveMessage(ctx))
	same([]string{message.Channel, message.Payload}, []string{own, value})
	same(listener.Ping(ctx), nil)
}

func scanning(r *redis.Client, own string) {
	wanted, found := []string{}, []string{}
	for i := range 200 {
		wanted = append(wanted, fmt.Sprintf("%s:%d", own, i))
		must(r.Set(ctx, wanted[i], "x", 0).Result())
	}
	for all := r.Scan(ctx, 0, own+":*", 50).Iterator(); all.Next(ctx); {
		found = append(found, all.Val())
	}
	slices.Sort(wanted)
	slices.Sort(found)
	same(slices.Compact(found), wanted)
}

func scripts(r *redis.Client, own string) {
	twice, value := redis.NewScript("return {KEYS[1], ARGV[1] .. ARGV[1]}"), nonce()
	same(must(twice.Run(ctx, r, []string{own}, value).Result()), []any{own, value + value})
	same(must(twice.EvalSha(ctx, r, []string{own}, value).Result()), []any{own, value + value})
}

func large(r *redis.Client, own string) {
	value := strings.Repeat(nonce(), 125_000)
	must(r.Set(ctx, own, value, 0).Result())
	same(must(r.Get(ctx, own).Result()) == value, true)
}

func streams(r *redis.Client, own string) {
	value, read := nonce(), make(chan []redis.XStream)
	go func() { read <- r.XRead(ctx, &redis.XReadArgs{Streams: []string{own, "0"}, Block: 10 * time.Second}).Val() }()
	id := must(r.XAdd(ctx, &redis.XAddArgs{Stream: own, Values: []any{"field", value}}).Result())
	same(<-read, []redis.XStream{{Stream: own, Messages: []redis.XMessage{{ID: id, Values: map[string]any{"field": value}}}}})
}

func databases(r *redis.Client, own string) {
	elsewhere, value := connect(3, "elsewhere"), nonce()
	defer elsewhere.Close()
	must(elsewhere.Set(ctx, own, value, 0).Result())
	must(r.Set(ctx, own, "here", 0).Result())
	same(must(elsewhere.Get(ctx, own).Result()), value)
	same(must(elsewhere.ClientGetName(ctx).Result()), "elsewhere")
}

func failing(r *redis.Client, own string) {
	must(r.Set(ctx, own, "x", 0).Result())
	same(strings.Contains(r.LPush(ctx, own, "y").Err().Error(), "WRONGTYPE"), true)
	same(strings.Contains(r.Do(ctx, "NOSUCHCOMMAND").Err().Error(), "unknown command"), true)
	same(must(r.Get(ctx, own).Result()), "x")
}

func main() {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if strings.HasPrefix(module.Path, "github.com/redis/go-redis/v9") {
			fmt.Println("version", module.Version)
		}
	}
	for _, check := range checks {
		var group sync.WaitGroup
		failures := make(chan any, connections)
		for i := range connections {
			group.Go(func() {
				r := connect(0, "")
				defer r.Close()
				defer func() {
					if why := recover(); why != nil {
						failures <- why
					}
				}()
				check.run(r, fmt.Sprintf("%s:%d", check.name, i))
			})
		}
		group.Wait()
		select {
		case why := <-failures:
			fmt.Printf("failed %s: %v\n", check.name, why)
		default:
			fmt.Println("ok", check.name)
		}
	}
}
