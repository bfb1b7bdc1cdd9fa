// Command sqlfence shows how a table in a SQL database refuses who holds a lock no more: each row remembers
// the highest fencing number that has written to it.
//
//	cd example/sqlfence && go run .
//
// It is a module of its own, so that its database does not become a dependency of herdgate. The database is
// an embedded SQLite in memory, and Redis an embedded stand-in; the statements are the same elsewhere.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2" //nolint:depguard // the example has to run where there is no Redis
	"github.com/redis/go-redis/v9"
	_ "modernc.org/sqlite" // the driver

	"github.com/herdgate/herdgate/stampede/lock"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sqlfence:", err)
		os.Exit(1)
	}
}

const schema = `
	CREATE TABLE prices (
		id    TEXT PRIMARY KEY,
		cents INTEGER NOT NULL,
		fence INTEGER NOT NULL DEFAULT 0
	);
	INSERT INTO prices (id, cents) VALUES ('p001', 1500)`

// setPrice writes a price, unless a later holder of the lock has written already. The check and the write are
// one statement, so nothing can come between them. A holder who writes the same row several times needs
// "fence <= $1" instead.
func setPrice(ctx context.Context, db *sql.DB, id string, cents int, fence uint64) error {
	res, err := db.ExecContext(ctx,
		`UPDATE prices SET cents = $2, fence = $1 WHERE fence < $1 AND id = $3`, int64(fence), cents, id)
	if err != nil {
		return err
	}
	switch n, err := res.RowsAffected(); {
	case err != nil:
		return err
	case n == 0: // or there is no such row
		return fmt.Errorf("%w: %d for price %q", lock.ErrStale, fence, id)
	}
	return nil
}

func run(ctx context.Context, out io.Writer) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection to :memory: has a database of its own
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	m, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer m.Close()
	m.ClockTTL(true)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	lk, err := lock.New(nil, rdb)
	if err != nil {
		return err
	}
	defer lk.Close()

	// Ann is paused for longer than her lease.
	ann, err := lk.Acquire(ctx, "price:p001", 100*time.Millisecond)
	if err != nil {
		return err
	}
	err = lk.Do(ctx, "price:p001", 10*time.Second, func(ctx context.Context) error {
		return setPrice(ctx, db, "p001", 1850, lock.FromContext(ctx).Fence())
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "Bob has written 1850")
	err = setPrice(ctx, db, "p001", 1700, ann.Fence())
	if !errors.Is(err, lock.ErrStale) {
		return fmt.Errorf("the old write of 1700 was not refused: %w", err)
	}
	fmt.Fprintln(out, "Ann's 1700 is refused: her fencing number is older")
	var cents int
	if err := db.QueryRowContext(ctx, `SELECT cents FROM prices WHERE id = 'p001'`).Scan(&cents); err != nil {
		return err
	}
	fmt.Fprintln(out, "The price is", cents)
	return nil
}
