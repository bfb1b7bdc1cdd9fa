package redisstore_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/herdgate/herdgate/internal/faultproxy"
	"github.com/herdgate/herdgate/internal/redistest"
	"github.com/herdgate/herdgate/stampede"
)

func TestConcurrentReadsShareRequests(t *testing.T) {
	t.Parallel()
	srv := redistest.Server(t)
	p := redistest.Proxy(t, srv.Addr())
	r := newRigVia(t, srv.Addr(), p.Addr(), patient)
	keys := []stampede.Key{r.key(), r.key(), r.key()}
	for _, key := range keys {
		r.ok(r.Set(t.Context(), key, value(key.Key)))
	}
	p.SetDelay(0, 5*time.Millisecond)
	before := r.Stats()
	r.do("CONFIG", "RESETSTAT")
	var wg sync.WaitGroup
	const callers = 300
	for i := range callers {
		wg.Go(func() {
			if e, err := r.Read(t.Context(), keys[i%3]); err != nil || string(e.Data) != keys[i%3].Key {
				t.Errorf("%q, %v", e.Data, err)
			}
		})
	}
	wg.Wait()
	requests := r.Stats().ReadRequests - before.ReadRequests
	var gets int
	for line := range strings.Lines(r.rdb.Info(t.Context(), "commandstats").Val()) {
		_, _ = fmt.Sscanf(line, "cmdstat_get:calls=%d,", &gets)
	}
	t.Logf("%d callers, %d requests, %d GETs", callers, requests, gets)
	if gets > callers/5 || gets == 0 {
		t.Errorf("%d callers of %d keys cost %d GETs in %d requests", callers, len(keys), gets, requests)
	}
}

// An answer that fails to come holds up those who asked for it, and nobody else for long.
func TestOverdueBatchHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	lost, other := r.key(), r.key()
	// Three readers under way: the others join batches.
	p.SetDelay(0, 10*time.Millisecond)
	p.DropReplies(faultproxy.Drop{N: 1, Match: faultproxy.Containing(lost.Key)})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _, _ = r.Read(t.Context(), lost) })
	}
	redistest.Eventually(t, 5*time.Second, func() bool { return p.Stats().DroppedReplies > 0 })
	for range 5 {
		began := time.Now()
		if _, err := r.Read(t.Context(), other); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 60*time.Millisecond+slack {
			t.Errorf("took %v", took)
		}
	}
	wg.Wait()
}

func TestLargeEntriesAreReadByMany(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	var keys []stampede.Key
	for range 16 {
		key := r.key()
		keys = append(keys, key)
		e := value("")
		e.Data = bytes.Repeat([]byte(key.Key), 512<<10/len(key.Key))
		r.ok(r.Set(t.Context(), key, e))
	}
	for range 3 {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				key := keys[i%len(keys)]
				e, err := r.Read(t.Context(), key)
				if err != nil || !strings.HasPrefix(string(e.Data), key.Key) {
					t.Errorf("%s: %d bytes, %v", key.Key, len(e.Data), err)
				}
			})
		}
		wg.Wait()
	}
}

func TestErrorsOfManyKeysNameSomeAndCountAll(t *testing.T) {
	t.Parallel()
	p := redistest.Proxy(t, shared.Server(t).Addr())
	r := newRigVia(t, shared.Server(t).Addr(), p.Addr(), nil)
	var keys []stampede.Key
	for range 1000 {
		keys = append(keys, r.key())
	}
	must(t, r.Set(t.Context(), keys[999], value("x")))
	must(t, r.Delete(t.Context(), keys...))
	if e := r.read(keys[999]); e.Stamp != (stampede.Stamp{}) {
		t.Error("not deleted")
	}
	must(t, r.Expire(t.Context(), keys...))
	must(t, r.Delete(t.Context()))
	p.BlackHole(true)
	began := time.Now()
	for step, err := range map[string]error{
		"delete": r.Delete(t.Context(), keys...), "expire": r.Expire(t.Context(), keys...),
	} {
		if err == nil || !strings.Contains(err.Error(), step+" failed for 1000 of 1000 keys") || !strings.Contains(err.Error(), keys[0].Key) {
			t.Errorf("%s: %v", step, err)
		}
	}
	if took := time.Since(began); took > 2*slack+500*time.Millisecond {
		t.Errorf("took %v", took)
	}
}

func TestManyKeysAreReadInOneRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared.Server(t).Addr(), patient)
	keys := make([]stampede.Key, 100)
	for i := range keys {
		keys[i] = r.key()
		if i%2 == 0 {
			r.ok(r.Set(t.Context(), keys[i], value(keys[i].Key)))
		}
	}
	keys = append(keys, keys[0], stampede.Key{Space: "{}", Key: "not a space"})
	before := r.Stats().ReadRequests
	entries, errs := r.ReadMany(t.Context(), keys)
	for i, key := range keys {
		want := ""
		if i%2 == 0 {
			want = key.Key
		}
		if i == len(keys)-1 {
			if errs[i] == nil {
				t.Error("no error for a space that there cannot be")
			}
			continue
		}
		if errs[i] != nil || string(entries[i].Data) != want {
			t.Errorf("%d: %q, %v, want %q", i, entries[i].Data, errs[i], want)
		}
	}
	if n := r.Stats().ReadRequests - before; n != 1 {
		t.Errorf("%d requests", n)
	}
}
