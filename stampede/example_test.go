package stampede_test

import (
	"context"
	"errors"
	"expvar"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/redisstore"
)

type Product struct {
	ID    string
	Name  string
	Cents int
}

// database stands for whatever is slow and must not be flattened.
type database struct {
	mu      sync.Mutex
	queries int
	fails   bool
}

func (db *database) Product(_ context.Context, id string) (Product, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.queries++
	switch {
	case db.fails:
		return Product{}, errors.New("database is down")
	case id == "no-such":
		return Product{}, stampede.ErrNotFound
	}
	return Product{ID: id, Name: "Lamp", Cents: 1900 + db.queries}, nil
}

var db = new(database)

func startRedis() (addr string, stop func()) {
	m, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	return m.Addr(), m.Close
}

func Example() {
	addr, stop := startRedis() // yours is there already
	defer stop()
	ctx := context.Background()

	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	store, err := redisstore.New(rdb, nil) // for a single pod: new(stampede.MemoryStore)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	products, err := stampede.New[Product](store, &stampede.Options{
		Name:   "product",
		Policy: stampede.Policy{TTL: time.Minute, StaleFor: 5 * time.Minute},
	})
	if err != nil {
		panic(err)
	}

	id := "42"
	p, err := products.Get(ctx, id, func(ctx context.Context) (Product, error) {
		return db.Product(ctx, id) // one caller in one pod runs this
	})
	fmt.Println(p.Name, err)

	// When the service ends: let loads end, but not for ever.
	end, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_ = products.Close(end)
	// Output: Lamp <nil>
}

// A hundred callers miss at once: one of them loads.
func ExampleGuard_Get() {
	products, _ := stampede.New[Product](new(stampede.MemoryStore), &stampede.Options{Name: "product"})
	loads := 0
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(func() {
			_, _ = products.Get(context.Background(), "42", func(context.Context) (Product, error) {
				loads++                           // without a lock: there is one load at a time
				time.Sleep(50 * time.Millisecond) // real time: the load takes a while
				return Product{Name: "Lamp"}, nil
			})
		})
	}
	callers.Wait()
	fmt.Println(loads, "load")
	// Output: 1 load
}

// What is known to be absent is remembered, too.
func ExampleGuard_Get_notFound() {
	products, _ := stampede.New[Product](new(stampede.MemoryStore), &stampede.Options{Name: "product"})
	queries := 0
	for range 3 {
		_, err := products.Get(context.Background(), "no-such", func(ctx context.Context) (Product, error) {
			queries++
			return Product{}, fmt.Errorf("product: %w", stampede.ErrNotFound)
		})
		fmt.Println(errors.Is(err, stampede.ErrNotFound))
	}
	fmt.Println(queries, "query")
	// Output:
	// true
	// true
	// true
	// 1 query
}

// A loader that is given a Load can say more about its value, and its caller learns where it is from.
func ExampleGuard_Fetch() {
	tokens, _ := stampede.New[string](new(stampede.MemoryStore), &stampede.Options{Name: "token"})
	load := func(ctx context.Context, l *stampede.Load[string]) (string, error) {
		l.TTL(10 * time.Minute) // what the token itself says, less a margin
		l.StaleFor(0)           // an expired token is of no use
		l.StaleIfError(0)       // not even when the issuer fails
		return "secret", nil
	}
	for range 2 {
		r, err := tokens.Fetch(context.Background(), "api", load)
		fmt.Println(r.Value, r.From == stampede.FromLoad, r.From == stampede.FromStore, err)
	}
	// Output:
	// secret true false <nil>
	// secret false true <nil>
}

// A source that can say "not modified" saves the transfer.
func ExampleLoad_NotModified() {
	type page struct{ ETag, Body string }
	pages, _ := stampede.New[page](new(stampede.MemoryStore), &stampede.Options{Name: "page"})
	ask := func(etag string) (page, bool) { // the bool: 304
		if etag == `"v1"` {
			return page{}, true
		}
		return page{`"v1"`, "hello"}, false
	}
	load := func(ctx context.Context, l *stampede.Load[page]) (page, error) {
		last, _ := l.Previous()
		p, same := ask(last.ETag)
		if same {
			return l.NotModified()
		}
		return p, nil
	}
	ctx := context.Background()
	_, _ = pages.Fetch(ctx, "/", load)
	_ = pages.Expire(ctx, "/")
	r, err := pages.Fetch(ctx, "/", load)
	fmt.Println(r.Value.Body, r.Freshness == stampede.Stale, err)
	// Output: hello true <nil>
}

// A value that must not be kept is still loaded once for all who wait for it.
func ExampleLoad_DoNotStore() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	ctx := context.Background()
	r, err := prices.Fetch(ctx, "42", func(ctx context.Context, l *stampede.Load[int]) (int, error) {
		l.DoNotStore()
		return 1900, nil
	})
	_, stored, _ := prices.Peek(ctx, "42")
	fmt.Println(r.Value, stored, err)
	// Output: 1900 false <nil>
}

// With the loader given once, a call needs no closure.
func ExampleGuard_Getter() {
	products, _ := stampede.New[Product](new(stampede.MemoryStore), &stampede.Options{Name: "product"})
	byID := products.Getter(db.Product)
	p, err := byID.Get(context.Background(), "42")
	fmt.Println(p.Name, err)
	// Output: Lamp <nil>
}

// Write to the source first, then delete what is stored. If Delete fails, the old value may be served
// until it expires: retry, or report.
func ExampleGuard_Delete() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	ctx := context.Background()
	source := 1900
	load := func(context.Context) (int, error) { return source, nil }
	before, _ := prices.Get(ctx, "42", load)

	source = 1700
	if err := prices.Delete(ctx, "42"); err != nil {
		fmt.Println("the old price may be served for a while:", err)
	}
	after, _ := prices.Get(ctx, "42", load)
	fmt.Println(before, after)
	// Output: 1900 1700
}

// Expire is gentler than Delete: the old value is served until the new one is there.
func ExampleGuard_Expire() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	ctx := context.Background()
	_ = prices.Set(ctx, "42", 1900)
	_ = prices.Expire(ctx, "42")
	r, stored, err := prices.Peek(ctx, "42")
	fmt.Println(r.Value, stored, r.Freshness == stampede.Stale, err)
	// Output: 1900 true true <nil>
}

// Set stores a value that is known without a load.
func ExampleGuard_Set() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	ctx := context.Background()
	_ = prices.Set(ctx, "42", 1900)
	price, err := prices.Get(ctx, "42", func(context.Context) (int, error) { panic("not called") })
	fmt.Println(price, err)
	// Output: 1900 <nil>
}

// Peek does not load.
func ExampleGuard_Peek() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	_, stored, err := prices.Peek(context.Background(), "42")
	fmt.Println(stored, err)
	// Output: false <nil>
}

// When loads fail, callers get what was there before, for as long as Policy.StaleIfError allows.
func ExamplePolicy_staleIfError() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{
		Name:   "price",
		Policy: stampede.Policy{TTL: time.Minute, StaleFor: -1, StaleIfError: time.Hour},
	})
	ctx := context.Background()
	_ = prices.Set(ctx, "42", 1900)
	_ = prices.Expire(ctx, "42")
	r, err := prices.Fetch(ctx, "42", func(context.Context, *stampede.Load[int]) (int, error) {
		return 0, errors.New("database is down")
	})
	fmt.Println(r.Value, r.Freshness == stampede.OnlyIfError, err)
	// Output: 1900 true <nil>
}

// After a load that failed no pod loads for a while, for longer with each one that fails in a row.
// Meanwhile callers get what was there before.
func ExamplePolicy_errorBackoff() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{
		Name: "price",
		Policy: stampede.Policy{
			TTL: time.Minute, StaleFor: -1, StaleIfError: time.Hour,
			ErrorBackoff:    2 * time.Second, // then 4, 8, 16, 32,
			MaxErrorBackoff: time.Minute,     // and 60 each time, until a load succeeds
		},
	})
	ctx := context.Background()
	_ = prices.Set(ctx, "42", 1900)
	_ = prices.Expire(ctx, "42")
	loads := 0
	for range 3 {
		price, err := prices.Get(ctx, "42", func(context.Context) (int, error) {
			loads++
			return 0, errors.New("database is down")
		})
		fmt.Println(price, err)
	}
	fmt.Println(loads, "load")
	// Output:
	// 1900 <nil>
	// 1900 <nil>
	// 1900 <nil>
	// 1 load
}

// Events tell what happens; a few lines make metrics of them. They come from many goroutines at once: what
// counts them must bear that, as an expvar.Map does and a plain map does not.
func ExampleObserver() {
	counts := new(expvar.Map) // expvar.NewMap("product") publishes it
	products, _ := stampede.New[Product](new(stampede.MemoryStore), &stampede.Options{
		Name:     "product",
		Observer: stampede.ObserverFunc(func(e stampede.Event) { counts.Add(e.Kind.String(), 1) }),
	})
	byID := products.Getter(db.Product)
	for range 3 {
		_, _ = byID.Get(context.Background(), "42")
	}
	fmt.Println(counts.Get("miss"), counts.Get("load"), counts.Get("hit"))
	// Output: 1 1 2
}

// Stats are the same counts without an Observer.
func ExampleGuard_Stats() {
	products, _ := stampede.New[Product](new(stampede.MemoryStore), &stampede.Options{Name: "product"})
	byID := products.Getter(db.Product)
	for range 3 {
		_, _ = byID.Get(context.Background(), "42")
	}
	s := products.Stats()
	fmt.Println(s.Misses, s.Loads, s.Hits)
	// Output: 1 1 2
}

// By default the callers of a pod may share a value, which they must not change. CopyOnRead gives each a
// value of its own.
func ExampleOptions_copyOnRead() {
	tags, _ := stampede.New[[]string](new(stampede.MemoryStore), &stampede.Options{Name: "tags", CopyOnRead: true})
	ctx := context.Background()
	_ = tags.Set(ctx, "42", []string{"lamp"})
	load := func(context.Context) ([]string, error) { panic("not called") }
	mine, _ := tags.Get(ctx, "42", load)
	mine[0] = "changed"
	yours, err := tags.Get(ctx, "42", load)
	fmt.Println(yours, err)
	// Output: [lamp] <nil>
}

// A service that ends lets loads end, too, and serves what it can meanwhile.
func ExampleGuard_Close() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = prices.Set(ctx, "42", 1900)
	fmt.Println(prices.Close(ctx))
	load := func(context.Context) (int, error) { panic("not called") }
	price, err := prices.Get(ctx, "42", load)
	fmt.Println(price, err)
	_, err = prices.Get(ctx, "43", load)
	fmt.Println(err)
	// Output:
	// <nil>
	// 1900 <nil>
	// stampede: guard is closed
}

// Refresh loads behind, before the time has come.
func ExampleGuard_Refresh() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	ctx := context.Background()
	_ = prices.Set(ctx, "42", 1900)
	err := prices.Refresh(ctx, "42", func(context.Context) (int, error) { return 1700, nil })
	_ = prices.Close(ctx) // waits for the load
	r, _, _ := prices.Peek(ctx, "42")
	fmt.Println(r.Value, err)
	// Output: 1700 <nil>
}

// With Local.TTL a pod serves what it has read lately from its memory, without asking the store. A Delete
// on any pod ends that.
func ExampleLocal() {
	addr, stop := startRedis()
	defer stop()
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	store, err := redisstore.New(rdb, nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	prices, err := stampede.New[int](store, &stampede.Options{
		Name:   "price",
		Policy: stampede.Policy{TTL: time.Minute},
		Local:  stampede.Local{TTL: 2 * time.Second},
	})
	if err != nil {
		panic(err)
	}
	price := prices.Getter(func(context.Context, string) (int, error) { return 1900, nil })
	for range 3 {
		r, err := price.Fetch(ctx, "42")
		fmt.Println(r.Value, r.From, err)
	}
	if err := prices.Delete(ctx, "42"); err != nil {
		panic(err)
	}
	r, err := price.Fetch(ctx, "42")
	fmt.Println(r.Value, r.From, err)
	// Output:
	// 1900 load <nil>
	// 1900 local <nil>
	// 1900 local <nil>
	// 1900 load <nil>
}

// SetMode is a kill switch, for a handler that only operators can reach, say.
func ExampleGuard_SetMode() {
	prices, _ := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price", Logger: slog.New(slog.DiscardHandler)})
	ctx := context.Background()
	_ = prices.Set(ctx, "42", -1) // something has gone wrong
	load := func(context.Context) (int, error) { return 1900, nil }

	var mode stampede.Mode
	if err := mode.UnmarshalText([]byte("bypass")); err != nil { // from a form or a configuration
		panic(err)
	}
	prices.SetMode(mode)
	price, _ := prices.Get(ctx, "42", load) // from the source
	fmt.Println(price)

	_ = prices.Delete(ctx, "42") // in every mode
	prices.SetMode(stampede.Normal)
	price, _ = prices.Get(ctx, "42", load)
	fmt.Println(price)
	// Output:
	// 1900
	// 1900
}

// With FleetLoads the source never has more loads to bear than it can take, whatever has become of the cache.
func ExampleOptions_fleetLoads() {
	prices, err := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{
		Name:       "price",
		FleetLoads: 2, // what the database can take
	})
	if err != nil {
		panic(err)
	}
	var running, most, count atomic.Int32
	price := prices.Getter(func(context.Context, string) (int, error) {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		return int(1900 + count.Add(1)), nil
	})
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := price.Get(context.Background(), fmt.Sprint(i)); err != nil {
				panic(err)
			}
		})
	}
	wg.Wait()
	fmt.Println(count.Load(), "loads,", most.Load() <= 2)
	// Output: 20 loads, true
}

// A load that hangs in one pod keeps the others waiting for as long as LoadTimeout. With Hedge one of them loads as well.
func ExampleOptions_hedge() {
	store := new(stampede.MemoryStore) // in production a redisstore.Store, which all pods share
	newPod := func() *stampede.Guard[int] {
		g, err := stampede.New[int](store, &stampede.Options{Name: "price", Hedge: 5})
		if err != nil {
			panic(err)
		}
		return g
	}
	a, b, ctx := newPod(), newPod(), context.Background()
	quick := func(context.Context) (int, error) { <-time.After(10 * time.Millisecond); return 1900, nil }
	_, _ = b.Get(ctx, "41", quick) // so it knows how long loads take

	began, hangs := make(chan struct{}), make(chan struct{})
	go a.Get(ctx, "42", func(context.Context) (int, error) { //nolint:errcheck // nobody looks at it here
		close(began)
		<-hangs
		return 0, errors.New("connection reset")
	})
	<-began
	fmt.Println(b.Get(ctx, "42", quick)) // 60 ms later, not 30 s

	close(hangs)
	_ = a.Close(ctx)
	_ = b.Close(ctx)
	// Output: 1900 <nil>
}

func queryPrices(_ context.Context, ids ...string) (map[string]int, error) {
	fmt.Println("query", len(ids))
	return map[string]int{"42": 1900, "43": 2900}, nil
}

func ExampleGuard_GetMany() {
	prices, err := stampede.New[int](new(stampede.MemoryStore), &stampede.Options{Name: "price"})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	for range 2 {
		found, err := prices.GetMany(ctx, []string{"42", "43", "44"}, func(ctx context.Context, ids []string) (map[string]int, error) {
			return queryPrices(ctx, ids...) // SELECT ... WHERE id IN (...)
		})
		fmt.Println(found, err) // there is no 44, and that is remembered, too
	}
	// Output:
	// query 3
	// map[42:1900 43:2900] <nil>
	// map[42:1900 43:2900] <nil>
}

// A loader says what its value depends on. When that changes, all entries of the tag are stale at once, those
// included that are being loaded just now.
func ExampleGuard_ExpireTag() {
	pages, _ := stampede.New[string](new(stampede.MemoryStore), &stampede.Options{Name: "page", Tags: true})
	ctx := context.Background()
	source := 1900
	load := func(_ context.Context, l *stampede.Load[string]) (string, error) {
		l.Tags("supplier:7", "currency:eur") // what the value is made of
		return fmt.Sprintf("%s costs %d", l.Key(), source), nil
	}
	for _, id := range []string{"lamp", "chair"} {
		_, _ = pages.Fetch(ctx, id, load)
	}

	source = 1700
	if err := pages.ExpireTag(ctx, "supplier:7"); err != nil {
		fmt.Println("the old prices may be served for a while:", err)
	}
	for _, id := range []string{"lamp", "chair"} {
		page, _ := pages.Fetch(ctx, id, load) // loaded behind when it is its turn: see Policy.TagSpread
		fmt.Println(page.Value, page.Freshness)
	}
	// Output:
	// lamp costs 1900 stale
	// chair costs 1900 stale
}
