package stampede_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

func newErr(change func(*stampede.Options)) error {
	o := stampede.Options{Name: "test"}
	change(&o)
	_, err := stampede.New[int](new(stampede.MemoryStore), &o)
	return err
}

func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	type o = stampede.Options
	for _, c := range []struct {
		field  string
		change func(*o)
	}{
		{"Options.Name", func(o *o) { o.Name = "" }},
		{"Options.Name", func(o *o) { o.Name = "a{b" }},
		{"Options.Name", func(o *o) { o.Name = "a b" }},
		{"Options.Name", func(o *o) { o.Name = "a@b" }},
		{"Options.Name", func(o *o) { o.Name = "a\x7fb" }},
		{"Options.Version", func(o *o) { o.Version = "}" }},
		{"Policy.TTL", func(o *o) { o.Policy.TTL = -1 }},
		{"Policy.TTL", func(o *o) { o.Policy.TTL = time.Microsecond }},
		{"Policy.TTL", func(o *o) { o.Policy.TTL = math.MaxInt64 }},
		{"Policy.StaleFor", func(o *o) { o.Policy.StaleFor = time.Nanosecond }},
		{"Policy.StaleFor", func(o *o) { o.Policy.StaleFor = math.MaxInt64 }},
		{"Policy.StaleIfError", func(o *o) { o.Policy.StaleIfError = math.MaxInt64 }},
		{"Policy.StaleIfError", func(o *o) { o.Policy.StaleFor, o.Policy.StaleIfError = time.Minute, time.Second }},
		{"Policy.NotFoundTTL", func(o *o) { o.Policy.NotFoundTTL = 1 }},
		{"Policy.ErrorBackoff", func(o *o) { o.Policy.ErrorBackoff = 1 }},
		{"Policy.MaxErrorBackoff", func(o *o) { o.Policy.MaxErrorBackoff = 999 * time.Millisecond }},
		{"Policy.MaxErrorBackoff", func(o *o) { o.Policy.ErrorBackoff, o.Policy.MaxErrorBackoff = time.Minute, time.Second }},
		{"Policy.MaxErrorBackoff", func(o *o) { o.Policy.ErrorBackoff, o.Policy.MaxErrorBackoff = -1, time.Minute }},
		{"Policy.MaxErrorBackoff", func(o *o) { o.Policy.MaxErrorBackoff = math.MaxInt64 }},
		{"Policy.Jitter", func(o *o) { o.Policy.Jitter = 1.1 }},
		{"Policy.Jitter", func(o *o) { o.Policy.Jitter = math.NaN() }},
		{"Policy.Beta", func(o *o) { o.Policy.Beta = math.Inf(1) }},
		{"Policy.Beta", func(o *o) { o.Policy.Beta = math.NaN() }},
		{"Policy.TagSpread", func(o *o) { o.Policy.TagSpread = 1 }},
		{"Policy.TagSpread", func(o *o) { o.Policy.TagSpread = math.MaxInt64 }},
		{"Options.LoadTimeout", func(o *o) { o.LoadTimeout = -1 }},
		{"Options.LoadTimeout", func(o *o) { o.LoadTimeout = 1 }},
		{"Options.Lease", func(o *o) { o.Lease = 9 * time.Millisecond }},
		{"Options.Lease", func(o *o) { o.Lease = -time.Second }},
		{"Options.StoreBudget", func(o *o) { o.StoreBudget = -1 }},
		{"Options.CopyBudget", func(o *o) { o.CopyBudget = time.Microsecond }},
		{"Options.SoftTimeout", func(o *o) { o.LoadTimeout, o.SoftTimeout = time.Second, time.Minute }},
		{"Options.OnWaitTimeout", func(o *o) { o.OnWaitTimeout = 7 }},
	} {
		if err := newErr(c.change); err == nil || !strings.Contains(err.Error(), c.field) || !strings.HasPrefix(err.Error(), "stampede: ") {
			t.Errorf("%s: %v", c.field, err)
		}
	}
}

func TestNewReturnsAllFaultsAtOnce(t *testing.T) {
	var none *stampede.MemoryStore
	_, err := stampede.New[int](none, &stampede.Options{Version: "{", Lease: 1, Policy: stampede.Policy{Jitter: 2, TTL: -1}})
	for _, what := range []string{"Options.Name", "Options.Version", "Options.Lease", "Policy.Jitter", "Policy.TTL", "store is nil"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("no word of %s in %v", what, err)
		}
	}
	if _, err := stampede.New[int](nil, nil); err == nil || !strings.Contains(err.Error(), "Options.Name") || !strings.Contains(err.Error(), "store is nil") {
		t.Errorf("without options: %v", err)
	}
}

func TestNegativeMeansOffWhereThatIsPossible(t *testing.T) {
	if err := newErr(func(o *stampede.Options) {
		o.Policy = stampede.Policy{StaleFor: -1, StaleIfError: -1, NotFoundTTL: -1, ErrorBackoff: -1, MaxErrorBackoff: -1, Jitter: -1, Beta: -1}
		o.SoftTimeout, o.WaitTimeout, o.MaxAbandoned, o.MaxValueSize = -1, -1, -1, -1
		o.Local = stampede.Local{Entries: -1, Bytes: -1}
	}); err != nil {
		t.Error(err)
	}
}

func TestNamesAndVersionsKeepEntriesApart(t *testing.T) {
	store := new(stampede.MemoryStore)
	for i, o := range []stampede.Options{{Name: "a"}, {Name: "b"}, {Name: "a", Version: "1"}, {Name: "a", Version: "2"}} {
		g := newGuard[int](t, store, o)
		if v, err := g.Get(t.Context(), "k", value(i)); v != i || err != nil {
			t.Errorf("%+v: %d, %v", o, v, err)
		}
	}
}
