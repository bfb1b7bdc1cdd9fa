package stampedetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

func ExampleFaulty() {
	ctx := context.Background()
	store := stampedetest.NewFaulty(new(stampede.MemoryStore))
	key := stampede.Key{Space: "products", Key: "42"}

	// The first answer to a commit is lost, and the network delivers the commit once more later.
	var late stampedetest.Copy
	store.Next(stampedetest.StepCommit, stampedetest.Fault{Copy: &late, Lost: errors.New("connection reset")})

	el, _ := store.Elect(ctx, key, stampede.Ballot{Token: stampede.NewToken(), Length: time.Second})
	_, err := store.Commit(ctx, key, el.Lease, stampede.Entry{Value: "tea", TTL: time.Minute})
	fmt.Println(err)

	e, _ := store.Read(ctx, key)
	fmt.Println("written all the same:", e.Value)

	_ = store.Delete(ctx, key)
	_ = late.Execute(ctx)
	e, _ = store.Read(ctx, key)
	fmt.Println("after Delete, and the late copy:", e.Value)
	fmt.Println("commits:", store.Calls(stampedetest.StepCommit))
	// Output:
	// stampedetest: Commit: connection reset
	// written all the same: tea
	// after Delete, and the late copy: <nil>
	// commits: 1
}

func ExampleFaulty_Script() {
	ctx := context.Background()
	store := stampedetest.NewFaulty(new(stampede.MemoryStore))
	store.Script(func(c stampedetest.Call) stampedetest.Fault {
		if c.Step == stampedetest.StepRead && c.Key.Key == "42" && c.KeyN == 2 {
			return stampedetest.Fault{Err: errors.New("no luck the second time")}
		}
		return stampedetest.Fault{}
	})
	for range 3 {
		_, err := store.Read(ctx, stampede.Key{Space: "products", Key: "42"})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// no luck the second time
	// <nil>
}

func ExampleLoads() {
	ctx := context.Background()
	products, err := stampede.New[string](new(stampede.MemoryStore), &stampede.Options{Name: "products"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer products.Close(ctx)

	loads := &stampedetest.Loads[string]{
		Value: func(key string, n int) string { return fmt.Sprintf("product %s, load %d", key, n) },
	}
	for range 2 {
		fmt.Println(products.Get(ctx, "42", loads.Loader("42")))
	}
	_ = products.Delete(ctx, "42")
	loads.Fail(1, errors.New("the database is down"))
	_, err = products.Get(ctx, "42", loads.Loader("42"))
	fmt.Println(err)
	fmt.Println("loads:", loads.Count("42"), "at a time:", loads.Most("42"))
	// Output:
	// product 42, load 1 <nil>
	// product 42, load 1 <nil>
	// the database is down
	// loads: 2 at a time: 1
}
