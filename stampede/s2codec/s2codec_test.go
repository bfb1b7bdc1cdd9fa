package s2codec_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/s2codec"
)

// bytesStore is a MemoryStore that keeps bytes, as Redis does.
type bytesStore struct{ stampede.MemoryStore }

func (*bytesStore) Encoded() bool { return true }

func newCodec(tb testing.TB, inner stampede.Codec, o *s2codec.Options) stampede.Codec {
	tb.Helper()
	c, err := s2codec.New(inner, o)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// random is n bytes that nothing can make smaller.
func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func size(t *testing.T, c stampede.Codec, v any) int {
	t.Helper()
	data, err := c.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return len(data)
}

func TestValuesOfAllSizesComeBack(t *testing.T) {
	for name, o := range map[string]*s2codec.Options{"defaults": nil, "all": {MinSize: -1}, "no bound": {MaxSize: -1}, "bound": {MaxSize: 5000}} {
		c := newCodec(t, nil, o)
		for _, n := range []int{0, 1, 100, 1000, 1100, 5000, 70_000, 3 << 20} {
			for kind, v := range map[string][]byte{"text": bytes.Repeat([]byte("stampede "), n/9+1)[:n], "noise": random(n)} {
				data, err := c.Marshal(v)
				if err != nil {
					t.Fatal(err)
				}
				var back []byte
				if err := c.Unmarshal(data, &back); err != nil || !bytes.Equal(back, v) {
					t.Errorf("%s: %d bytes of %s: %d came back, %v", name, n, kind, len(back), err)
				}
			}
		}
	}
}

func TestOnlyWhatGetsSmallerIsCompressed(t *testing.T) {
	text, short := strings.Repeat("stampede ", 1000), strings.Repeat("x", 900)
	plain := func(v any) int { return size(t, stampede.Msgpack, v) }
	c := newCodec(t, nil, nil)
	if n := size(t, c, text); n > plain(text)/10 {
		t.Errorf("%d bytes of text take %d", plain(text), n)
	}
	if n := size(t, c, short); n != plain(short)+1 {
		t.Errorf("%d bytes, fewer than MinSize, take %d", plain(short), n)
	}
	if n := size(t, newCodec(t, nil, &s2codec.Options{MinSize: -1}), short); n > 100 {
		t.Errorf("%d bytes take %d without MinSize", plain(short), n)
	}
	if v := random(10_000); size(t, c, v) != plain(v)+1 {
		t.Errorf("%d bytes of noise take %d", plain(v), size(t, c, v))
	}
	if n := size(t, newCodec(t, nil, &s2codec.Options{MaxSize: 5000}), text); n != plain(text)+1 {
		t.Errorf("%d bytes, more than MaxSize, take %d", plain(text), n)
	}
}

// packed is an entry of n bytes that compress well.
func packed(n int) []byte { return append([]byte{1}, s2.Encode(nil, make([]byte, n))...) }

// claims is an entry that says it holds n bytes.
func claims(n uint64, rest ...byte) []byte {
	return append(binary.AppendUvarint([]byte{1}, n), rest...)
}

var hostile = map[string][]byte{
	"empty":         {},
	"no such form":  {2, 0, 0},
	"raw, nothing":  {0},
	"raw garbage":   {0, 0xc1},
	"no length":     {1},
	"endless":       {1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	"4 GiB":         claims(1<<32 - 1),
	"8 EiB":         claims(1 << 63),
	"above MaxSize": claims(1<<16+1, random(100)...),
	"cut short":     packed(1 << 15)[:10],
	"longer":        append(packed(1<<15), 1, 2, 3),
	"noise":         claims(1<<10, random(1<<10)...),
	"bomb":          packed(64 << 20),
	"no MessagePack": append([]byte{1},
		s2.Encode(nil, bytes.Repeat([]byte{0xc1}, 1<<10))...),
}

func TestBombsAndGarbageAreErrorsAndCostNothing(t *testing.T) {
	c := newCodec(t, nil, &s2codec.Options{MaxSize: 1 << 16})
	for name, data := range hostile {
		t.Run(name, func(t *testing.T) {
			given := slices.Clone(data)
			for _, into := range []any{new(any), new([]byte), new(string)} {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := c.Unmarshal(data, into)
				runtime.ReadMemStats(&after)
				if err == nil {
					t.Errorf("decoded as %T", into)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
					t.Errorf("%d bytes were allocated for %d", n, len(data))
				}
			}
			if !bytes.Equal(given, data) {
				t.Error("the bytes of the store were changed")
			}
		})
	}
}

func TestCodecIsSafeForConcurrentUse(t *testing.T) {
	c := newCodec(t, nil, nil)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				v := strings.Repeat(fmt.Sprintf("%d of %d ", j, i), 100+10*j)
				data, err := c.Marshal(v)
				if err != nil {
					t.Error(err)
					return
				}
				var back string
				if err := c.Unmarshal(data, &back); err != nil || back != v {
					t.Errorf("%d bytes came back as %d, %v", len(v), len(back), err)
				}
			}
		})
	}
	wg.Wait()
}

func TestValuesDoNotChangeWhenOthersAreDecoded(t *testing.T) {
	type value struct {
		B []byte
		S string
		A any
	}
	c := newCodec(t, nil, nil)
	of := func(r byte) value {
		b := bytes.Repeat([]byte{r}, 4000)
		return value{b, string(b), string(b)}
	}
	one, _ := c.Marshal(of('a'))
	two, _ := c.Marshal(of('b'))
	var v, other value
	if err := errors.Join(c.Unmarshal(one, &v), c.Unmarshal(two, &other)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, of('a')) || !reflect.DeepEqual(other, of('b')) {
		t.Error("a value has changed")
	}
}

// inner is a codec that does as told.
type inner struct{ marshal, unmarshal func() error }

func (inner) Name() string                  { return "inner" }
func (c inner) Marshal(any) ([]byte, error) { return make([]byte, 5000), c.marshal() }
func (c inner) Unmarshal([]byte, any) error { return c.unmarshal() }

func TestInnerCodecThatFailsOrPanicsIsNotHidden(t *testing.T) {
	boom := errors.New("boom")
	fine, fails, panics := func() error { return nil }, func() error { return boom }, func() error { panic(boom) }
	if c := newCodec(t, inner{fails, fine}, nil); c.Name() != "s2+inner" {
		t.Error(c.Name())
	} else if _, err := c.Marshal(1); err != boom {
		t.Errorf("Marshal: %v", err)
	}
	data, err := newCodec(t, inner{fine, fine}, nil).Marshal(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := newCodec(t, inner{fine, fails}, nil).Unmarshal(data, new(int)); err != boom {
		t.Errorf("Unmarshal: %v", err)
	}
	c := newCodec(t, inner{fine, panics}, nil)
	for range 3 {
		func() {
			defer func() {
				if p := recover(); p != boom {
					t.Errorf("Unmarshal panicked with %v", p)
				}
			}()
			_ = c.Unmarshal(data, new(int))
		}()
	}
}

func TestTypesAreCheckedByTheInnerCodec(t *testing.T) {
	o := stampede.Options{Name: "test", Codec: newCodec(t, nil, nil)}
	if _, err := stampede.New[chan int](new(bytesStore), &o); err == nil {
		t.Error("a channel is accepted")
	}
	o.Codec = newCodec(t, inner{}, nil) // checks nothing
	if _, err := stampede.New[chan int](new(bytesStore), &o); err != nil {
		t.Error(err)
	}
}

func TestGuardsWithAndWithoutCompressionMissEachOthersEntries(t *testing.T) {
	store, text := new(bytesStore), strings.Repeat("stampede ", 1000)
	packing, err := stampede.New[string](store, &stampede.Options{Name: "test", Codec: newCodec(t, nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := stampede.New[string](store, &stampede.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := packing.Set(t.Context(), "k", text); err != nil {
		t.Fatal(err)
	}
	e, err := store.Read(t.Context(), stampede.Key{Space: "test", Key: "k"})
	if err != nil || len(e.Data) > len(text)/10 {
		t.Errorf("%d bytes are stored, %v", len(e.Data), err)
	}
	v, err := packing.Get(t.Context(), "k", func(context.Context) (string, error) { return "", errors.New("loaded") })
	if err != nil || v != text {
		t.Errorf("%d bytes, %v", len(v), err)
	}
	if _, ok, err := plain.Peek(t.Context(), "k"); ok || err != nil {
		t.Errorf("Peek: %v, %v", ok, err)
	}
}

func TestOptionsThatWouldCompressNothingAreRefused(t *testing.T) {
	if _, err := s2codec.New(nil, &s2codec.Options{MinSize: 2000, MaxSize: 1000}); err == nil {
		t.Error("accepted")
	}
}

func FuzzUnmarshal(f *testing.F) {
	for _, data := range hostile {
		if len(data) < 10_000 {
			f.Add(data)
		}
	}
	f.Add(packed(100))
	c := newCodec(f, nil, &s2codec.Options{MinSize: -1, MaxSize: 1 << 16})
	f.Fuzz(func(t *testing.T, data []byte) {
		var v []byte
		_ = c.Unmarshal(data, &v) // whatever it is, without a panic
		if len(v) > 1<<16 && data[0] != 0 {
			t.Errorf("%d bytes were unpacked", len(v))
		}
		entry, err := c.Marshal(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Unmarshal(entry, &v); err != nil || !bytes.Equal(v, data) {
			t.Errorf("%x came back as %x, %v", data, v, err)
		}
	})
}
