package entry

import (
	"encoding/binary"

	"github.com/herdgate/herdgate/stampede"
)

// The tags of an entry: the epoch and the number as of which they hold, 8 bytes each; how many there are, 1
// byte; then each with its length in 1 byte before it.
const (
	offNumber = 8
	offCount  = 16
	offFirst  = 17
)

// CheckTags returns nil if t can be encoded, which nil tags can.
func CheckTags(t *stampede.Tags) error {
	if t == nil {
		return nil
	}
	if n := len(t.Names); n == 0 || n > stampede.MaxTags {
		return ErrTags
	}
	for _, tag := range t.Names {
		if tag == "" || len(tag) > stampede.MaxTagSize {
			return ErrTags
		}
	}
	return nil
}

func tagsSize(t *stampede.Tags) int {
	if t == nil {
		return 0
	}
	size := offFirst
	for _, tag := range t.Names {
		size += 1 + len(tag)
	}
	return size
}

func appendTags(b []byte, t *stampede.Tags) []byte {
	b = binary.BigEndian.AppendUint64(b, t.AsOf.Epoch)
	b = binary.BigEndian.AppendUint64(b, t.AsOf.Number)
	b = append(b, byte(len(t.Names)))
	for _, tag := range t.Names {
		b = append(b, byte(len(tag)))
		b = append(b, tag...)
	}
	return b
}

// readTags reads what appendTags wrote, and returns what follows it.
func readTags(b []byte) (t *stampede.Tags, rest []byte, ok bool) {
	if len(b) < offFirst {
		return nil, nil, false
	}
	n := int(b[offCount])
	if n == 0 || n > stampede.MaxTags {
		return nil, nil, false
	}
	t = &stampede.Tags{
		AsOf:  stampede.TagTime{Epoch: binary.BigEndian.Uint64(b), Number: binary.BigEndian.Uint64(b[offNumber:])},
		Names: make([]string, n),
	}
	b = b[offFirst:]
	for i := range t.Names {
		if len(b) == 0 {
			return nil, nil, false
		}
		size := int(b[0])
		if size == 0 || len(b) < 1+size {
			return nil, nil, false
		}
		t.Names[i], b = string(b[1:1+size]), b[1+size:]
	}
	return t, b[:len(b):len(b)], true
}
