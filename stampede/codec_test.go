package stampede_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

type (
	hidden struct{ a, b int }
	partly struct{ Shown, hidden int }
	nested struct {
		In struct{ Deeper []map[string]chan int }
	}
	tree    struct{ Kids []*tree }
	skipped struct {
		F func() `msgpack:"-"`
		N int
	}
	pointerMethods struct {
		ID  int
		Sum big.Int
	}
)

// Through the codec's own door and not a guard each: every type that a guard is made for costs the
// compiler a second.
func accepts[T any]() error {
	return stampede.Msgpack.(interface{ Check(reflect.Type) error }).Check(reflect.TypeFor[T]())
}

func TestTypesThatWouldNotSurviveTheCodecAreRefused(t *testing.T) {
	for name, check := range map[string]func() error{
		"channel": accepts[chan int], "function": accepts[func()], "unexported fields only": accepts[hidden],
		"pointer": accepts[*hidden], "slice": accepts[[]chan int], "array": accepts[[3]func()],
		"map value": accepts[map[string]chan int], "map key": accepts[map[chan int]string], "nested": accepts[nested],
		"complex": accepts[complex128],
	} {
		if err := check(); err == nil || !strings.HasPrefix(err.Error(), "stampede: ") && !strings.HasPrefix(err.Error(), "field ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := &stampede.Options{Name: "test"}
	if _, err := stampede.New[hidden](new(bytesStore), o); err == nil {
		t.Error("New does not ask the codec")
	}
	if _, err := stampede.New[hidden](new(stampede.MemoryStore), o); err != nil {
		t.Errorf("in memory no codec is needed: %v", err)
	}
}

// comesBack encodes v, decodes it and compares.
func comesBack[T any](t *testing.T, name string, v T, same func(a, b T) bool) {
	t.Helper()
	if err := accepts[T](); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	data, err := stampede.Encode(stampede.Msgpack, v)
	must(t, err)
	if got, err := stampede.Decode[T](stampede.Msgpack, data); err != nil || !same(got, v) {
		t.Errorf("%s: %+v came back as %+v (%v)", name, v, got, err)
	}
}

func deep[T any](a, b T) bool { return reflect.DeepEqual(a, b) }

func TestTypesThatSurviveTheCodecComeBack(t *testing.T) {
	comesBack(t, "int", 42, deep)
	comesBack(t, "empty string", "", deep)
	comesBack(t, "bytes", []byte{0, 255}, deep)
	comesBack(t, "nil pointer", (*partly)(nil), deep)
	comesBack(t, "pointer", &partly{Shown: 1}, deep)
	comesBack(t, "partly exported", partly{Shown: 1}, deep)
	comesBack(t, "empty struct", struct{}{}, deep)
	comesBack(t, "skipped field", skipped{N: 1}, func(a, b skipped) bool { return a.N == b.N })
	comesBack(t, "recursive", tree{Kids: []*tree{{}, {Kids: []*tree{{}}}}}, func(a, b tree) bool { return len(a.Kids) == 2 && len(a.Kids[1].Kids) == 1 })
	comesBack(t, "time", time.Now(), func(a, b time.Time) bool { return a.Equal(b) })
	comesBack(t, "url", url.URL{Host: "example.com"}, func(a, b url.URL) bool { return a.Host == b.Host })
	comesBack(t, "address", netip.MustParseAddr("::1"), deep)
	comesBack(t, "big", *big.NewInt(1 << 62), func(a, b big.Int) bool { return a.Cmp(&b) == 0 })
	comesBack(t, "big inside", pointerMethods{1, *big.NewInt(7)}, func(a, b pointerMethods) bool { return a.Sum.Cmp(&b.Sum) == 0 })
	comesBack(t, "map", map[string][]int{"a": {1}}, deep)
	comesBack(t, "any", any("x"), deep)
	comesBack(t, "nil any", any(nil), deep)
	comesBack(t, "raw JSON", json.RawMessage(`{"a":1}`), deep)
}

// badCodec misbehaves as told.
type badCodec struct{ marshal, unmarshal func() error }

func (badCodec) Name() string { return "bad" }
func (c badCodec) Marshal(any) ([]byte, error) {
	if c.marshal == nil {
		return []byte("x"), nil
	}
	return nil, c.marshal()
}
func (c badCodec) Unmarshal(_ []byte, v any) error {
	if c.unmarshal == nil {
		*v.(*int) = 1
		return nil
	}
	return c.unmarshal()
}

func TestCodecThatFailsOrPanicsCostsTheEntryAndNotTheCaller(t *testing.T) {
	fails, panics := func() error { return errServer }, func() error { panic("codec") }
	for name, c := range map[string]badCodec{
		"encode fails": {marshal: fails}, "encode panics": {marshal: panics},
		"decode fails": {unmarshal: fails}, "decode panics": {unmarshal: panics},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, new(bytesStore), stampede.Options{Codec: c})
			for i := range 3 {
				if got := get(t.Context(), p.Guard, "k", value(i)); got.v != i || got.err != nil {
					t.Errorf("Get = %d, %v", got.v, got.err)
				}
			}
			if err := p.Set(t.Context(), "k", 1); (c.marshal != nil) != (err != nil) {
				t.Errorf("Set: %v", err)
			}
			if _, ok, err := p.Peek(t.Context(), "k"); ok || err != nil {
				t.Errorf("Peek: %v, %v", ok, err)
			}
			if s := p.Stats(); c.marshal != nil && s.NotStored == 0 || c.unmarshal != nil && s.BadEntries == 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestValuesOfAnotherCodecAreAMiss(t *testing.T) {
	store := new(bytesStore)
	a, b := newPod(t, store, stampede.Options{}), newPod(t, store, stampede.Options{Codec: badCodec{}})
	must(t, a.Set(t.Context(), "k", 7))
	if _, ok, err := b.Peek(t.Context(), "k"); ok || err != nil {
		t.Errorf("Peek: %v, %v", ok, err)
	}
}

func TestCopyOnReadGivesEachCallerAValueOfItsOwn(t *testing.T) {
	for name, store := range map[string]stampede.Store{"memory": new(stampede.MemoryStore), "bytes": new(bytesStore)} {
		t.Run(name, func(t *testing.T) {
			g := newGuard[[]int](t, store, stampede.Options{CopyOnRead: true})
			gate := make(chan struct{})
			values := make(chan []int)
			for range 8 {
				go func() {
					v, err := g.Get(t.Context(), "k", func(context.Context) ([]int, error) { <-gate; return []int{1, 2}, nil })
					if err != nil {
						t.Error(err)
					}
					values <- v
				}()
			}
			close(gate)
			for range 8 {
				v := <-values
				if !reflect.DeepEqual(v, []int{1, 2}) {
					t.Errorf("another caller's changes are seen: %v", v)
				}
				v[0] = 99
			}
		})
	}
}

// hostile are entries that no codec has made.
var hostile = map[string][]byte{
	"array of 4 G":   {0xdd, 0xff, 0xff, 0xff, 0xff},
	"map of 4 G":     {0xdf, 0xff, 0xff, 0xff, 0xff},
	"map of 2 G":     {0xdf, 0x80, 0x00, 0x00, 0x00},
	"string of 4 GB": {0xdb, 0xff, 0xff, 0xff, 0xff},
	"bytes of 4 GB":  {0xc6, 0xff, 0xff, 0xff, 0xff},
	"ext of 4 GB":    {0xc9, 0xff, 0xff, 0xff, 0xff, 0x01},
	"many large":     bytes.Repeat([]byte{0xdd, 0x00, 0xff, 0xff, 0xff}, 1000),
	"deep arrays":    append(bytes.Repeat([]byte{0x91}, 10_000_000), 0xc0),
	"deep maps":      append(bytes.Repeat([]byte{0x81, 0xa1, 'k'}, 5_000_000), 0xc0),
	"empty":          {},
	"never used":     {0xc1},
	"two values":     {0x01, 0x02},
	"cut short":      {0x92, 0x01},
}

func TestHostileBytesAreAMissAndCostNothing(t *testing.T) {
	for name, data := range hostile {
		t.Run(name, func(t *testing.T) {
			var v any
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := stampede.Msgpack.Unmarshal(data, &v)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("decoded as %v", v)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
				t.Errorf("%d bytes were allocated for %d", n, len(data))
			}
			for _, into := range []any{new([]string), new(map[string]int), new(string), new([]byte), new(tree), new(int)} {
				if err := stampede.Msgpack.Unmarshal(data, into); err == nil {
					t.Errorf("decoded as %T", into)
				}
			}
		})
	}
}

func TestEntryThatCannotBeDecodedIsReplaced(t *testing.T) {
	store := new(bytesStore)
	p := newPod(t, store, stampede.Options{})
	must(t, p.Set(t.Context(), "k", 1))
	e, err := store.Read(t.Context(), key("k"))
	must(t, err)
	e.Data = hostile["array of 4 G"]
	must(t, store.Set(t.Context(), key("k"), e))
	if got := get(t.Context(), p.Guard, "k", value(2)); got.v != 2 || got.err != nil {
		t.Errorf("%+v", got)
	}
	if got := get(t.Context(), p.Guard, "k", never(t)); got.v != 2 || got.err != nil {
		t.Errorf("%+v", got)
	}
}

func TestValuesTooLargeAreServedAndNotStored(t *testing.T) {
	net := stampedetest.NewFaulty(new(bytesStore))
	g := newGuard[string](t, net, stampede.Options{MaxValueSize: 100})
	for range 2 {
		if v, err := g.Get(t.Context(), "k", value(strings.Repeat("x", 101))); len(v) != 101 || err != nil {
			t.Errorf("%d bytes, %v", len(v), err)
		}
	}
	if n := net.Calls(stampedetest.StepCommit); n != 0 {
		t.Errorf("%d commits", n)
	}
	if err := g.Set(t.Context(), "k", strings.Repeat("x", 101)); !errors.Is(err, stampede.ErrTooLarge) {
		t.Errorf("Set: %v", err)
	}
}

func FuzzMsgpackCheck(f *testing.F) {
	for _, v := range []any{nil, 1, -1, 1 << 40, 1.5, float32(2), "text", strings.Repeat("long", 100), []byte("b"), true, []any{1, []any{"x"}},
		map[string]any{"a": []int{1, 2}}, time.Unix(1, 2), partly{Shown: 1}, bytes.Repeat([]byte{1}, 70_000), map[int]string{1: "x"}} {
		data, err := msgpack.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, data := range hostile {
		if len(data) < 10_000 {
			f.Add(data)
		}
	}
	f.Add([]byte(`{"a": [1, -2.5, "text", null, true], "b": {"c": {}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		// What is accepted is decoded in safety, whatever comes of it.
		if stampede.CheckMsgpack(data) == nil {
			var v any
			_ = safely(func() error { return stampede.Msgpack.Unmarshal(data, &v) })
		}
		// What Marshal makes is accepted.
		var v any
		if json.Unmarshal(data, &v) != nil {
			v = data
		}
		encoded, err := msgpack.Marshal(v)
		if err == nil && bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) < 500 && stampede.CheckMsgpack(encoded) != nil {
			t.Errorf("%x is refused, and is the encoding of %#v", encoded, v)
		}
	})
}

// safely turns a panic of the decoder into an error; there are some, which is why the guard shields itself.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = errBoom
		}
	}()
	return f()
}

// slowCodec counts what it decodes.
type slowCodec struct {
	stampede.Codec
	decoded *int
}

func (c slowCodec) Unmarshal(data []byte, v any) error {
	*c.decoded++
	return c.Codec.Unmarshal(data, v)
}

func TestAPodDecodesAnEntryOnce(t *testing.T) {
	for _, own := range []bool{false, true} {
		n := 0
		p := newGuard[[]int](t, new(bytesStore), stampede.Options{Codec: slowCodec{stampede.Msgpack, &n}, CopyOnRead: own})
		ask := func(want int) []int {
			t.Helper()
			v, err := p.Get(t.Context(), "k", func(context.Context) ([]int, error) { return nil, errServer })
			if err != nil || len(v) != 1 || v[0] != want {
				t.Errorf("Get = %v, %v, want [%d]", v, err, want)
			}
			return v
		}
		loaded := []int{1}
		if _, err := p.Get(t.Context(), "k", func(context.Context) ([]int, error) { return loaded, nil }); err != nil {
			t.Fatal(err)
		}
		loaded[0] = 7 // who loaded it goes on with it, which is wrong, and what is stored is right
		n = 0
		first := ask(1)
		if same := &first[0] == &ask(1)[0]; same == own {
			t.Errorf("CopyOnRead is %v, and the second call got the same value: %v", own, same)
		}
		must(t, p.Set(t.Context(), "k", []int{2}))
		ask(2)
		ask(2)
		if want := 2; !own && n != want || own && n < 2*want {
			t.Errorf("CopyOnRead is %v: decoded %d times", own, n)
		}
	}
}
