// Package entry is the wire format of what redisstore keeps under a key: a header of fixed size, then
// the payload. Scripts read the header with byte arithmetic, so every field has a fixed place;
// docs/protocol.md holds the table. A format once released is decoded for ever: testdata keeps a
// golden file of each.
package entry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/herdgate/herdgate/stampede"
)

// Version is the format that Encode writes.
const Version = 1

// Where the fields of the header begin. Numbers are unsigned and big-endian.
const (
	offMagic        = 0  // 2 bytes, "hg"
	offVersion      = 2  // 1
	offFlags        = 3  // 1; directly before the stamp, so that Expire rewrites both at once
	offStamp        = 4  // 32
	offTook         = 36 // 6, ms
	offTTL          = 42 // 6, ms
	offStaleFor     = 48 // 6, ms
	offStaleIfError = 54 // 6, ms
	offKeyCheck     = 60 // 8
	offType         = 68 // 8
	offSum          = 76 // 8, of what Expire leaves alone: from offTook on without itself, and the payload

	// HeaderSize is the size of the header; the payload follows.
	HeaderSize = 84
)

const (
	flagNotFound = 1 << 0
	flagExpired  = 1 << 1
	flagTags     = 1 << 2 // tags stand between the header and the payload
	knownFlags   = flagNotFound | flagExpired | flagTags
)

// maxMillis is the longest duration that a field of 6 bytes holds: 8,900 years.
const maxMillis = 1<<48 - 1

// Faults: why what is stored cannot be used. They are found in stampede.Entry.Fault with errors.Is.
var (
	ErrShort   = errors.New("shorter than a header")
	ErrMagic   = errors.New("not an entry")
	ErrVersion = errors.New("unknown format version")
	ErrFlags   = errors.New("unknown flags")
	ErrKey     = errors.New("entry of another key")
	ErrStamp   = errors.New("no stamp")
	ErrSum     = errors.New("damaged: wrong checksum")
	ErrTags    = errors.New("tags that make no sense")
)

// Check is what the header keeps of the key: the XXH64 of space, a zero byte, and key.
func Check(space, key string) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(space)
	_, _ = d.Write(separator[:])
	_, _ = d.WriteString(key)
	return d.Sum64()
}

var separator [1]byte

// AppendCheck appends check to b as the header holds it.
func AppendCheck(b []byte, check uint64) []byte { return binary.BigEndian.AppendUint64(b, check) }

// Encode returns e as it is stored: its header, its tags, then e.Data. The tags must be such that CheckTags
// returns nil.
func Encode(e *stampede.Entry, check uint64) []byte {
	b := make([]byte, HeaderSize, HeaderSize+tagsSize(e.Tags)+len(e.Data))
	b[offMagic], b[offMagic+1], b[offVersion] = 'h', 'g', Version
	if e.NotFound {
		b[offFlags] |= flagNotFound
	}
	if e.Expired {
		b[offFlags] |= flagExpired
	}
	if e.Tags != nil {
		b[offFlags] |= flagTags
		b = appendTags(b, e.Tags)
	}
	copy(b[offStamp:], e.Stamp[:])
	putMillis(b[offTook:], e.Took)
	putMillis(b[offTTL:], e.TTL)
	putMillis(b[offStaleFor:], e.StaleFor)
	putMillis(b[offStaleIfError:], e.StaleIfError)
	binary.BigEndian.PutUint64(b[offKeyCheck:], check)
	binary.BigEndian.PutUint64(b[offType:], e.Type)
	b = append(b, e.Data...)
	binary.BigEndian.PutUint64(b[offSum:], sum(b))
	return b
}

// sum is the XXH64 of what never changes in an entry.
func sum(b []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(b[offTook:offSum])
	_, _ = d.Write(b[HeaderSize:])
	return d.Sum64()
}

// Decode reads what is stored. The entry's Data is a part of b. What cannot be used has a Fault, which
// says why, and its Stamp if b is of a known format. Left is not set.
func Decode(b []byte, check uint64) stampede.Entry {
	if len(b) < HeaderSize {
		return fault(stampede.Stamp{}, ErrShort)
	}
	if b[offMagic] != 'h' || b[offMagic+1] != 'g' {
		return fault(stampede.Stamp{}, ErrMagic)
	}
	if b[offVersion] != Version {
		return fault(stampede.Stamp{}, ErrVersion)
	}
	stamp := stampede.Stamp(b[offStamp : offStamp+32])
	flags := b[offFlags]
	if flags&^knownFlags != 0 {
		return fault(stamp, ErrFlags)
	}
	if binary.BigEndian.Uint64(b[offKeyCheck:]) != check {
		return fault(stamp, ErrKey)
	}
	if stamp == (stampede.Stamp{}) {
		return fault(stamp, ErrStamp)
	}
	if binary.BigEndian.Uint64(b[offSum:]) != sum(b) {
		return fault(stamp, ErrSum)
	}
	e := stampede.Entry{
		Stamp:        stamp,
		NotFound:     flags&flagNotFound != 0,
		Expired:      flags&flagExpired != 0,
		Type:         binary.BigEndian.Uint64(b[offType:]),
		Took:         millis(b[offTook:]),
		TTL:          millis(b[offTTL:]),
		StaleFor:     millis(b[offStaleFor:]),
		StaleIfError: millis(b[offStaleIfError:]),
	}
	payload := b[HeaderSize:len(b):len(b)]
	if flags&flagTags != 0 {
		var ok bool
		if e.Tags, payload, ok = readTags(payload); !ok {
			return fault(stamp, ErrTags)
		}
	}
	if !e.NotFound {
		e.Data = payload
	}
	return e
}

func fault(s stampede.Stamp, why error) stampede.Entry {
	return stampede.Entry{Stamp: s, Fault: fmt.Errorf("redisstore: unusable entry: %w", why)}
}

// putMillis stores d in whole milliseconds, rounded down, negative ones as 0.
func putMillis(b []byte, d time.Duration) {
	ms := uint64(min(max(d.Milliseconds(), 0), maxMillis))
	binary.BigEndian.PutUint16(b, uint16(ms>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(ms))
}

// millis reads what putMillis stored. What is longer than a time.Duration holds (292 years) is cut.
func millis(b []byte) time.Duration {
	const longest = (1<<63 - 1) / uint64(time.Millisecond)
	ms := uint64(binary.BigEndian.Uint16(b))<<32 | uint64(binary.BigEndian.Uint32(b[2:]))
	return time.Duration(min(ms, longest)) * time.Millisecond
}
