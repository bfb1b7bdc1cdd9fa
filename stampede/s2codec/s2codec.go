// Package s2codec compresses what another codec makes, with S2 (github.com/klauspost/compress/s2), an
// extension of Snappy. It saves memory of the store and network for larger values, at little cost for
// each read. The package is apart from stampede so that only those who use it link the library.
//
//	codec, err := s2codec.New(stampede.Msgpack, nil)
//	reports, err := stampede.New[Report](store, &stampede.Options{Name: "report", Codec: codec})
//
// Entries of a guard with this codec and of one without are a miss for each other. During a rollout in
// which both run, pods would replace each other's entries: change Options.Version together with the
// codec. The new entries are then loaded once each, as with an empty store.
package s2codec

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/herdgate/herdgate/stampede"
)

// Options configure a codec. The zero value, and nil, mean the defaults.
type Options struct {
	// MinSize is from how many bytes on an encoded value is compressed. Default 1 KiB; negative: all
	// are.
	MinSize int
	// MaxSize bounds what Unmarshal may unpack, in bytes: an entry that claims to be larger is an
	// error, and costs nothing. Larger values are not compressed; whether they are stored is for
	// Options.MaxValueSize of the guard to say, which bounds the size after compression. Default 8 MiB;
	// negative: only the format's own bound, 4 GiB.
	MaxSize int
}

// Faults of entries that Marshal has not made.
var (
	errForm     = errors.New("s2codec: unknown form")
	errTooLarge = errors.New("s2codec: larger than MaxSize")
)

// The first byte says how the rest is to be read. A value that is not compressed has its byte, too: no
// byte is sure not to begin what inner makes.
const (
	formRaw byte = iota
	formS2
)

type codec struct {
	inner    stampede.Codec
	min, max int
	scratch  sync.Pool // of *[]byte
}

// New returns a codec that compresses what inner makes; nil means stampede.Msgpack. What does not get
// smaller by an eighth at least is kept as it is, after one byte that says so.
//
// The codec's name is "s2+" and the name of inner. It allows the types that inner allows. Unmarshal lends
// inner its bytes for the time of the call only, as the contract of Codec says: an inner codec that
// keeps parts of them sees them change.
func New(inner stampede.Codec, o *Options) (stampede.Codec, error) {
	if inner == nil {
		inner = stampede.Msgpack
	}
	if o == nil {
		o = new(Options)
	}
	c := &codec{inner: inner, min: or(o.MinSize, 1<<10, 0), max: or(o.MaxSize, 8<<20, math.MaxInt)}
	if c.min > c.max {
		return nil, fmt.Errorf("s2codec: MinSize (%d) is above MaxSize (%d): nothing would be compressed", c.min, c.max)
	}
	return c, nil
}

// or returns n, or def if n is zero, or off if it is negative.
func or(n, def, off int) int {
	switch {
	case n == 0:
		return def
	case n < 0:
		return off
	}
	return n
}

func (c *codec) Name() string { return "s2+" + c.inner.Name() }

// Check refuses the types that the inner codec refuses.
func (c *codec) Check(t reflect.Type) error {
	if inner, ok := c.inner.(interface{ Check(reflect.Type) error }); ok {
		return inner.Check(t)
	}
	return nil
}

// Marshal takes the time for s2's better compression: a value is written once and read many times, and
// reading costs the same.
func (c *codec) Marshal(v any) ([]byte, error) {
	raw, err := c.inner.Marshal(v)
	if err != nil {
		return nil, err
	}
	most := s2.MaxEncodedLen(len(raw)) // negative: too large for the format
	if len(raw) < c.min || len(raw) > c.max || most < 0 {
		return framed(formRaw, raw), nil
	}
	room := c.borrow(most)
	defer c.giveBack(room)
	packed := s2.EncodeBetter(*room, raw)
	if len(packed) > len(raw)-len(raw)/8 {
		return framed(formRaw, raw), nil
	}
	return framed(formS2, packed), nil
}

func framed(form byte, data []byte) []byte {
	out := make([]byte, 1+len(data))
	out[0] = form
	copy(out[1:], data)
	return out
}

func (c *codec) Unmarshal(data []byte, v any) error {
	if len(data) == 0 {
		return errForm
	}
	form, data := data[0], data[1:]
	switch form {
	case formRaw:
		return c.inner.Unmarshal(data, v)
	case formS2:
		return c.unpack(data, v)
	}
	return errForm
}

func (c *codec) unpack(data []byte, v any) error {
	n, err := s2.DecodedLen(data) // what it claims
	switch {
	case err != nil:
		return fmt.Errorf("s2codec: %w", err)
	case n > c.max:
		return fmt.Errorf("%w: %d bytes, at most %d", errTooLarge, n, c.max)
	}
	room := c.borrow(n)
	raw, err := s2.Decode(*room, data)
	if err != nil {
		c.giveBack(room)
		return fmt.Errorf("s2codec: %w", err)
	}
	err = c.inner.Unmarshal(raw, v) // after a panic in it the room is not used again
	c.giveBack(room)
	return err
}

// maxRoom is the largest piece of memory that is kept for the next value.
const maxRoom = 1 << 20

// borrow returns n bytes, whatever is in them.
func (c *codec) borrow(n int) *[]byte {
	room, ok := c.scratch.Get().(*[]byte)
	if !ok || cap(*room) < n {
		fresh := make([]byte, n)
		return &fresh
	}
	*room = (*room)[:n]
	return room
}

func (c *codec) giveBack(room *[]byte) {
	if cap(*room) <= maxRoom {
		c.scratch.Put(room)
	}
}
