// Real use of pgx, each check on many connections at once. What is asked holds a nonce that the answer must echo.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	table = "c_pgx"
	limit = 60 * time.Second
)

var connections = 8

type check struct {
	name string
	work func(context.Context) error
}

var checks = []check{
	{"transactions", transactions},
	{"prepared", prepared},
	{"unprepared", unprepared},
	{"batches", batches},
	{"pipelines", pipelines},
	{"copy", copyBothWays},
	{"cursors", cursors},
	{"cancel", cancelled},
	{"timeouts", timeouts},
	{"types", types},
	{"settings", settings},
	{"listen", listen},
	{"tls", overTLS},
	{"tls_verified", overTLSVerified},
	{"channel_binding", channelBinding},
	{"own_pool", ownPool},
}

func main() {
	if n, err := strconv.Atoi(os.Getenv("CONNECTIONS")); err == nil {
		connections = n
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if strings.HasPrefix(dependency.Path, "github.com/jackc/pgx/") {
				fmt.Println("version", dependency.Version)
			}
		}
	}
	wanted, status := os.Getenv("CHECKS"), 0
	for _, c := range checks {
		if wanted != "" && !strings.Contains(","+wanted+",", ","+c.name+",") {
			continue
		}
		ctx, done := context.WithTimeout(context.Background(), limit)
		if err := c.work(ctx); err != nil {
			status = 1
			fmt.Printf("failed %s: %s\n", c.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Println("ok", c.name)
		}
		done()
	}
	os.Exit(status)
}

// How statements are sent; pgx prepares and keeps them by default.
type mode = pgx.QueryExecMode

const (
	cached   = pgx.QueryExecModeCacheStatement
	describe = pgx.QueryExecModeDescribeExec
	direct   = pgx.QueryExecModeExec
	plain    = pgx.QueryExecModeSimpleProtocol
)

func connect(ctx context.Context, settings string, how mode) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(settings)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = how
	return pgx.ConnectConfig(ctx, config)
}

// onEach runs the work on many connections at once and returns the first error.
func onEach(ctx context.Context, how mode, work func(*pgx.Conn, int) error) error {
	return onEachOf(ctx, "sslmode=disable", how, work)
}

func onEachOf(ctx context.Context, settings string, how mode, work func(*pgx.Conn, int) error) error {
	errs := make(chan error, connections)
	var group sync.WaitGroup
	for n := range connections {
		group.Add(1)
		go func() {
			defer group.Done()
			conn, err := connect(ctx, settings, how)
			if err == nil {
				err = work(conn, n)
				conn.Close(ctx)
			}
			errs <- err
		}()
	}
	group.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func echo(ctx context.Context, conn *pgx.Conn) error {
	mine, got := rand.Text(), ""
	if err := conn.QueryRow(ctx, "SELECT $1::text", mine).Scan(&got); err != nil {
		return err
	}
	return same("nonce", mine, got)
}

func same(what string, expected, got any) error {
	if fmt.Sprint(expected) != fmt.Sprint(got) {
		return fmt.Errorf("%s: expected %v, got %v", what, expected, got)
	}
	return nil
}

func state(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return fmt.Sprint("no error of the server: ", err)
}

func setUp(ctx context.Context) error {
	conn, err := connect(ctx, "sslmode=disable", plain)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "DROP TABLE IF EXISTS "+table+"; CREATE TABLE "+table+" (worker int, n int, note text, UNIQUE (worker, n))")
	return err
}

func rowsOf(ctx context.Context, conn *pgx.Conn, worker int) (count int, err error) {
	err = conn.QueryRow(ctx, "SELECT count(*) FROM "+table+" WHERE worker = $1", worker).Scan(&count)
	return
}

func transactionsIn(ctx context.Context, how mode) error {
	if err := setUp(ctx); err != nil {
		return err
	}
	return onEach(ctx, how, func(conn *pgx.Conn, worker int) error {
		wrong := errors.New("on purpose")
		for n := range 20 {
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "INSERT INTO "+table+" VALUES ($1, $2, $3)", worker, n, rand.Text()); err != nil {
					return err
				}
				if err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
					_, err := inner.Exec(ctx, "SELECT 1/0")
					return err
				}); state(err) != "22012" {
					return fmt.Errorf("the savepoint: %w", err)
				}
				if n%2 == 0 {
					return wrong
				}
				return nil
			})
			if err != nil && !errors.Is(err, wrong) {
				return err
			}
		}
		count, err := rowsOf(ctx, conn, worker)
		if err != nil {
			return err
		}
		return same("rows", 10, count)
	})
}

func transactions(ctx context.Context) error { return transactionsIn(ctx, direct) }

func prepared(ctx context.Context) error {
	if err := transactionsIn(ctx, cached); err != nil {
		return err
	}
	return onEach(ctx, cached, func(conn *pgx.Conn, worker int) error {
		if _, err := conn.Prepare(ctx, "by name", "SELECT $1::text, $2::int * 2"); err != nil {
			return err
		}
		for n := range 40 {
			mine, got, twice := rand.Text(), "", 0
			if err := conn.QueryRow(ctx, "by name", mine, n).Scan(&got, &twice); err != nil {
				return err
			}
			if err := errors.Join(same("nonce", mine, got), same("product", 2*n, twice), echo(ctx, conn)); err != nil {
				return err
			}
		}
		return conn.Deallocate(ctx, "by name")
	})
}

func unprepared(ctx context.Context) error {
	for _, how := range []mode{direct, describe, plain} {
		if err := onEach(ctx, how, func(conn *pgx.Conn, _ int) error {
			for range 30 {
				if err := echo(ctx, conn); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return fmt.Errorf("mode %v: %w", how, err)
		}
	}
	return nil
}

// A batch prepares what is new, then sends all at once; its error ends it.
func batches(ctx context.Context) error {
	return onEach(ctx, cached, func(conn *pgx.Conn, worker int) error {
		for round := range 10 {
			batch, asked := &pgx.Batch{}, []string{}
			for n := range 8 {
				asked = append(asked, rand.Text())
				batch.Queue(fmt.Sprintf("SELECT $1::text, %d", n+round%3), asked[n])
			}
			failing := round%2 == 1
			if failing {
				batch.Queue("SELECT 1/$1::int", 0)
				batch.Queue("SELECT 'never'")
			}
			results := conn.SendBatch(ctx, batch)
			for n := range 8 {
				got, number := "", 0
				if err := results.QueryRow().Scan(&got, &number); err != nil {
					return err
				}
				if err := same("nonce", asked[n], got); err != nil {
					return err
				}
			}
			if failing {
				got := 0
				if err := same("error in a batch", "22012", state(results.QueryRow().Scan(&got))); err != nil {
					return err
				}
			}
			if err := results.Close(); err != nil && !failing {
				return err
			}
			if err := echo(ctx, conn); err != nil {
				return err
			}
		}
		return nil
	})
}

// The driver's pipeline mode, with several Syncs on their way and an error between two of them.
func pipelines(ctx context.Context) error {
	return onEach(ctx, direct, func(conn *pgx.Conn, _ int) error {
		pipeline := conn.PgConn().StartPipeline(ctx)
		asked := []string{}
		for n := range 9 {
			asked = append(asked, rand.Text())
			sql := "SELECT $1::text"
			if n%3 == 1 {
				sql = "SELECT (1/(length($1) - length($1)))::text"
			}
			pipeline.SendQueryParams(sql, [][]byte{[]byte(asked[n])}, nil, nil, nil)
			if err := pipeline.Sync(); err != nil {
				return err
			}
		}
		for n := range 9 {
			for synced := false; !synced; {
				results, err := pipeline.GetResults()
				switch results := results.(type) {
				case *pgconn.ResultReader:
					read := results.Read()
					if n%3 == 1 {
						err = same("error", "22012", state(read.Err))
					} else {
						err = same("nonce", asked[n], string(bytes.Join(read.Rows[0], nil)))
					}
				case *pgconn.PipelineSync:
					synced = true
				case nil:
					if n%3 == 1 && state(err) == "22012" {
						err = nil
					}
				}
				if err != nil {
					return err
				}
			}
		}
		if err := pipeline.Close(); err != nil {
			return err
		}
		return echo(ctx, conn)
	})
}

func copyBothWays(ctx context.Context) error {
	if err := setUp(ctx); err != nil {
		return err
	}
	return onEach(ctx, direct, func(conn *pgx.Conn, worker int) error {
		const lines = 3000
		// Asks for the columns' types with a statement of its own first.
		copied, err := conn.CopyFrom(ctx, pgx.Identifier{table}, []string{"worker", "n", "note"},
			pgx.CopyFromSlice(lines, func(n int) ([]any, error) { return []any{worker, n, fmt.Sprint("note ", n)}, nil }))
		if err != nil {
			return err
		}
		var out, expected bytes.Buffer
		for n := range lines {
			fmt.Fprintf(&expected, "%d\t%d\tnote %d\n", worker, n, n)
		}
		if _, err := conn.PgConn().CopyTo(ctx, &out, fmt.Sprintf("COPY (SELECT * FROM %s WHERE worker = %d ORDER BY n) TO STDOUT", table, worker)); err != nil {
			return err
		}
		_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader("rubbish\n"), "COPY "+table+" FROM STDIN")
		return errors.Join(same("copied in", lines, copied), same("copied out", expected.String(), out.String()), same("bad copy", "22P02", state(err)), echo(ctx, conn))
	})
}

func cursors(ctx context.Context) error {
	return onEach(ctx, direct, func(conn *pgx.Conn, worker int) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, fmt.Sprintf("DECLARE c CURSOR FOR SELECT generate_series(1, 95) + %d", worker*1000)); err != nil {
				return err
			}
			next := worker*1000 + 1
			for {
				rows, err := tx.Query(ctx, "FETCH 10 FROM c")
				if err != nil {
					return err
				}
				got, err := pgx.CollectRows(rows, pgx.RowTo[int])
				if err != nil || len(got) == 0 {
					return errors.Join(err, same("rows", worker*1000+96, next))
				}
				for _, n := range got {
					if err := same("row", next, n); err != nil {
						return err
					}
					next++
				}
			}
		})
	})
}

func cancelled(ctx context.Context) error {
	return onEach(ctx, direct, func(conn *pgx.Conn, _ int) error {
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Exec(ctx, "SELECT pg_sleep(30)")
			ended <- err
		}()
		for range 20 {
			time.Sleep(300 * time.Millisecond)
			// It may come before the query does; then it is meant for nothing.
			if err := conn.PgConn().CancelRequest(ctx); err != nil {
				return err
			}
			select {
			case err := <-ended:
				return errors.Join(same("cancelled", "57014", state(err)), echo(ctx, conn))
			case <-time.After(300 * time.Millisecond):
			}
		}
		return errors.New("20 requests to cancel did nothing")
	})
}

func timeouts(ctx context.Context) error {
	if err := onEach(ctx, direct, func(conn *pgx.Conn, _ int) error {
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = '100ms'"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "SELECT pg_sleep(10)")
			return err
		})
		return errors.Join(same("time-out", "57014", state(err)), echo(ctx, conn))
	}); err != nil {
		return err
	}
	// The driver's own: it cuts the connection.
	return onEach(ctx, direct, func(conn *pgx.Conn, _ int) error {
		short, done := context.WithTimeout(ctx, 200*time.Millisecond)
		defer done()
		if _, err := conn.Exec(short, "SELECT pg_sleep(10)"); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("expected the deadline, got %w", err)
		}
		return nil
	})
}

func types(ctx context.Context) error {
	return onEach(ctx, describe, func(conn *pgx.Conn, _ int) error {
		day := time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.UTC)
		var (
			i int32
			l int64
			d string
			t time.Time
			b []byte
			j map[string][]int
			a []int32
			n *string
			f bool
			e float64
		)
		err := conn.QueryRow(ctx, "SELECT $1::int4, $2::int8, $3::numeric::text, $4::timestamptz, $5::bytea, $6::jsonb, $7::int[], $8::text, $9::bool, $10::float8",
			7, int64(9007199254740993), "1.10", day, []byte{0, 255}, map[string][]int{"a": {1}}, []int32{1, 2, 3}, nil, true, 0.1).
			Scan(&i, &l, &d, &t, &b, &j, &a, &n, &f, &e)
		if err != nil {
			return err
		}
		return same("values", []any{7, int64(9007199254740993), "1.10", day, []byte{0, 255}, map[string][]int{"a": {1}}, []int32{1, 2, 3}, true, true, 0.1},
			[]any{i, l, d, t.UTC(), b, j, a, n == nil, f, e})
	})
}

func settings(ctx context.Context) error {
	return onEach(ctx, direct, func(conn *pgx.Conn, worker int) error {
		path, tenant := fmt.Sprintf("schema_%d, public", worker), fmt.Sprint("tenant ", worker)
		if _, err := conn.Exec(ctx, "SET search_path = "+path); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT set_config('app.tenant', $1, false)", tenant); err != nil {
			return err
		}
		for range 20 {
			var gotPath, gotTenant string
			if err := conn.QueryRow(ctx, "SELECT current_setting('search_path'), current_setting('app.tenant', true)").Scan(&gotPath, &gotTenant); err != nil {
				return err
			}
			if err := errors.Join(same("search_path", path, gotPath), same("app.tenant", tenant, gotTenant)); err != nil {
				return err
			}
		}
		return nil
	})
}

func listen(ctx context.Context) error {
	return onEach(ctx, direct, func(conn *pgx.Conn, worker int) error {
		channel := fmt.Sprintf("channel_%d", worker)
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		for n := range 5 {
			if _, err := conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, fmt.Sprint("note ", n)); err != nil {
				return err
			}
		}
		for n := range 5 {
			got, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(same("channel", channel, got.Channel), same("payload", fmt.Sprint("note ", n), got.Payload)); err != nil {
				return err
			}
		}
		return nil
	})
}

// encrypted asks for nonces by all ways of sending statements, on connections with these settings.
func encrypted(ctx context.Context, settings string) error {
	for _, how := range []mode{cached, describe, direct, plain} {
		err := onEachOf(ctx, settings, how, func(conn *pgx.Conn, _ int) error {
			if _, ok := conn.PgConn().Conn().(*tls.Conn); !ok {
				return errors.New("the connection is not encrypted")
			}
			for range 10 {
				if err := echo(ctx, conn); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// refused says whether connecting fails with these words.
func refused(ctx context.Context, settings, words string) error {
	conn, err := connect(ctx, settings, direct)
	if err == nil {
		conn.Close(ctx)
		return errors.New("let in with " + settings)
	}
	if !strings.Contains(err.Error(), words) {
		return fmt.Errorf("not %q: %w", words, err)
	}
	return nil
}

func overTLS(ctx context.Context) error {
	return encrypted(ctx, "sslmode=require")
}

func overTLSVerified(ctx context.Context) error {
	there, ours, others := "host="+os.Getenv("TLS_HOST"), " sslmode=verify-full sslrootcert="+os.Getenv("TLS_CA"), " sslmode=verify-full sslrootcert="+os.Getenv("TLS_OTHER_CA")
	return errors.Join(encrypted(ctx, there+ours), refused(ctx, there+others, "unknown authority"), refused(ctx, ours, "doesn't contain any IP SANs"))
}

func channelBinding(ctx context.Context) error {
	return errors.Join(encrypted(ctx, "sslmode=require channel_binding=require"), refused(ctx, "sslmode=disable channel_binding=require", "channel binding"))
}

// The driver's own pool in front of ours.
func ownPool(ctx context.Context) error {
	config, err := pgxpool.ParseConfig(fmt.Sprintf("sslmode=disable pool_max_conns=%d", connections))
	if err != nil {
		return err
	}
	config.ConnConfig.DefaultQueryExecMode = direct
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	errs := make(chan error, 300)
	for range cap(errs) {
		go func() {
			mine, got := rand.Text(), ""
			err := pool.QueryRow(ctx, "SELECT $1::text", mine).Scan(&got)
			if err == nil {
				err = same("nonce", mine, got)
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
