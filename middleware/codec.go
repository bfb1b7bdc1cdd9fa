package middleware

import (
	"encoding/binary"
	"errors"
	"reflect"
	"slices"
	"time"
)

// codec writes entries for stores that hold bytes. A hit is to cost little, so it is not the general one.
type codec struct{}

// Name implements [stampede.Codec].
func (codec) Name() string { return "herdgate-http-1" }

// Check refuses nothing: the guard's type is always *stored.
func (codec) Check(reflect.Type) error { return nil }

var (
	errNotStored = errors.New("middleware: not a stored response")
	errCorrupt   = errors.New("middleware: stored response is corrupt")
)

const (
	kindResponse = 1
	kindSpec     = 2

	flagValidate = 1
	flagPublic   = 2
	allFlags     = flagValidate | flagPublic
)

// Marshal lays out a head, with its length before it, and the body.
func (codec) Marshal(v any) ([]byte, error) {
	s, ok := v.(*stored)
	if !ok || s == nil || s.streamed {
		return nil, errNotStored
	}
	var head []byte
	if s.isSpec() {
		head = append(head, kindSpec)
		head = appendPart(head, string(s.key))
		head = append(head, s.gen[:]...)
		head = appendList(head, s.vary)
	} else {
		var flags byte
		if s.validate {
			flags |= flagValidate
		}
		if s.public {
			flags |= flagPublic
		}
		head = append(head, kindResponse)
		head = appendPart(head, string(s.key))
		head = append(head, flags)
		head = binary.AppendUvarint(head, uint64(s.status))
		head = binary.AppendUvarint(head, uint64(s.age/time.Millisecond))
		head = binary.AppendUvarint(head, uint64(s.errorFor/time.Millisecond))
		head = binary.AppendUvarint(head, uint64(len(s.fields)))
		for _, f := range s.fields {
			head = appendPart(head, f.name)
			add := byte(0)
			if f.add {
				add = 1
			}
			head = appendList(append(head, add), f.values)
		}
	}
	data := make([]byte, 0, binary.MaxVarintLen64+len(head)+len(s.body))
	data = binary.AppendUvarint(data, uint64(len(head)))
	data = append(data, head...)
	return append(data, s.body...), nil
}

func appendList(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendPart(b, s)
	}
	return b
}

// Unmarshal reads what Marshal has written; all else is an error.
func (codec) Unmarshal(data []byte, v any) error {
	to, ok := v.(**stored)
	if !ok {
		return errNotStored
	}
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return errCorrupt
	}
	d := decoder{left: string(data[size : size+int(n)])}
	body := data[size+int(n):]
	s := new(stored)
	switch d.byte() {
	case kindSpec:
		s.key = key(d.part())
		copy(s.gen[:], d.take(len(s.gen)))
		s.vary = d.list()
		if !s.isSpec() || len(body) > 0 {
			d.bad = true
		}
	case kindResponse:
		s.key = key(d.part())
		flags := d.byte()
		s.validate, s.public = flags&flagValidate != 0, flags&flagPublic != 0
		s.status = int(d.number(999))
		s.age = time.Duration(d.number(maxMillis)) * time.Millisecond
		s.errorFor = time.Duration(d.number(maxMillis)) * time.Millisecond
		s.fields = make([]field, 0, d.count())
		for range cap(s.fields) {
			f := field{name: d.part(), add: d.byte() == 1}
			f.values = d.list()
			s.fields = append(s.fields, f)
		}
		s.body = slices.Clone(body)
		if flags&^allFlags != 0 || s.status < 200 {
			d.bad = true
		}
	default:
		d.bad = true
	}
	if d.bad || d.left != "" {
		return errCorrupt
	}
	*to = s
	return nil
}

const maxMillis = 1 << 40

// decoder takes a head apart. After the first fault it returns zeros.
type decoder struct {
	left string
	bad  bool
}

func (d *decoder) take(n int) string {
	if d.bad || n > len(d.left) {
		d.bad = true
		return ""
	}
	s := d.left[:n]
	d.left = d.left[n:]
	return s
}

func (d *decoder) byte() byte {
	if s := d.take(1); s != "" {
		return s[0]
	}
	return 0
}

func (d *decoder) number(most uint64) uint64 {
	var n uint64
	for shift := 0; ; shift += 7 {
		c := d.byte()
		if d.bad || shift > 56 {
			d.bad = true
			return 0
		}
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			break
		}
	}
	if n > most {
		d.bad = true
		return 0
	}
	return n
}

// count reads how many of something follow; each takes at least a byte.
func (d *decoder) count() int { return int(d.number(uint64(len(d.left)))) }

func (d *decoder) part() string { return d.take(d.count()) }

func (d *decoder) list() []string {
	n := d.count()
	if d.bad || n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.part()
	}
	return list
}
