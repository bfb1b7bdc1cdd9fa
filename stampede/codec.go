package stampede

import (
	"encoding"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"

	"github.com/vmihailenco/msgpack/v5"
)

// Codec turns values into bytes and back. It is safe for concurrent use.
//
// Unmarshal is given whatever somebody wrote into the store: it returns an error for bytes that
// Marshal would not have made, and allocates no more than in proportion to them. A panic in it counts
// as an error. It must not keep data, which others read. What Marshal has returned is the guard's: a buffer must
// not be used again.
type Codec interface {
	// Name is part of the type check of entries: values of another codec are a miss.
	Name() string
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// Msgpack is the default codec: MessagePack by vmihailenco/msgpack/v5, whose struct tags apply.
var Msgpack Codec = msgpackCodec{}

type msgpackCodec struct{}

func (msgpackCodec) Name() string { return "msgpack" }

// Marshal copies a value that cannot be encoded as it is: url.URL and big.Int, say, encode themselves
// through their address only.
func (msgpackCodec) Marshal(v any) ([]byte, error) {
	data, err := msgpack.Marshal(v)
	if err == nil || v == nil {
		return data, err
	}
	p := reflect.New(reflect.TypeOf(v))
	p.Elem().Set(reflect.ValueOf(v))
	return msgpack.Marshal(p.Interface())
}

func (msgpackCodec) Unmarshal(data []byte, v any) error {
	if err := checkMsgpack(data); err != nil {
		return err
	}
	return msgpack.Unmarshal(data, v)
}

// Check refuses types that would come back empty.
func (msgpackCodec) Check(t reflect.Type) error { return survives(t, nil) }

var errMsgpack = errors.New("stampede: not one whole MessagePack value")

// maxDepth bounds how deep a value may nest: a decoder recurses, and a stack that overflows cannot be
// recovered from.
const maxDepth = 512

// checkMsgpack makes sure that data is exactly one value, and that no length in it promises more than
// there is. The decoder allocates by those lengths before it looks at what follows.
func checkMsgpack(data []byte) error {
	left := append(make([]int, 0, 16), 1) // values still to come, by depth
	for {
		for left[len(left)-1] == 0 {
			if left = left[:len(left)-1]; len(left) == 0 {
				if len(data) > 0 {
					return errMsgpack
				}
				return nil
			}
		}
		left[len(left)-1]--
		if len(data) == 0 {
			return errMsgpack
		}
		c := data[0]
		data = data[1:]
		size, nested := 0, 0 // bytes, values that follow
		switch {
		case c <= 0x7f || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3: // small int, nil, bool
		case c <= 0x8f: // small map
			nested = 2 * int(c&0x0f)
		case c <= 0x9f: // small array
			nested = int(c & 0x0f)
		case c <= 0xbf: // small string
			size = int(c & 0x1f)
		case c == 0xc1: // never used
			return errMsgpack
		default:
			width, fixed, kind := msgpackForm(c)
			if len(data) < width {
				return errMsgpack
			}
			n := fixed
			for _, b := range data[:width] {
				n = n<<8 | int(b)
			}
			data = data[width:]
			if n < 0 || n > len(data) { // also where an int has 32 bits: what follows cannot overflow
				return errMsgpack
			}
			switch kind {
			case 'b':
				size = n
			case 'e': // an extension's type comes before its bytes
				size = n + 1
			case 'a':
				nested = n
			case 'm':
				nested = 2 * n
			}
		}
		if size > len(data) || nested > len(data) || nested < 0 {
			return errMsgpack
		}
		data = data[size:]
		if nested > 0 {
			if len(left) == maxDepth {
				return errMsgpack
			}
			left = append(left, nested)
		}
	}
}

// msgpackForm describes a type byte from 0xc4 to 0xdf: how many bytes its length has, its length when
// it has none, and what the length counts.
func msgpackForm(c byte) (width, fixed int, kind byte) {
	switch c {
	case 0xc4, 0xd9: // bin8, str8
		return 1, 0, 'b'
	case 0xc5, 0xda:
		return 2, 0, 'b'
	case 0xc6, 0xdb:
		return 4, 0, 'b'
	case 0xc7, 0xc8, 0xc9: // ext8, 16, 32
		return 1 << (c - 0xc7), 0, 'e'
	case 0xca, 0xce, 0xd2: // float32, uint32, int32
		return 0, 4, 'b'
	case 0xcb, 0xcf, 0xd3:
		return 0, 8, 'b'
	case 0xcc, 0xd0:
		return 0, 1, 'b'
	case 0xcd, 0xd1:
		return 0, 2, 'b'
	case 0xd4, 0xd5, 0xd6, 0xd7, 0xd8: // fixext1, 2, 4, 8, 16
		return 0, 1 << (c - 0xd4), 'e'
	case 0xdc:
		return 2, 0, 'a'
	case 0xdd:
		return 4, 0, 'a'
	case 0xde:
		return 2, 0, 'm'
	default: // 0xdf
		return 4, 0, 'm'
	}
}

// survives refuses a type of which encoding and decoding would leave nothing: a channel, a function, a
// struct with no field that is exported. Types that encode themselves are taken at their word.
func survives(t reflect.Type, seen map[reflect.Type]bool) error {
	for _, i := range []reflect.Type{
		reflect.TypeFor[msgpack.CustomEncoder](), reflect.TypeFor[msgpack.Marshaler](),
		reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[encoding.TextMarshaler](),
	} {
		if t.Implements(i) || reflect.PointerTo(t).Implements(i) {
			return nil
		}
	}
	if seen[t] {
		return nil
	}
	if seen == nil {
		seen = make(map[reflect.Type]bool)
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128, reflect.Uintptr:
		return fmt.Errorf("stampede: a %v cannot be encoded", t)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return survives(t.Elem(), seen)
	case reflect.Map:
		return errors.Join(survives(t.Key(), seen), survives(t.Elem(), seen))
	case reflect.Struct:
		return structSurvives(t, seen)
	}
	return nil
}

func structSurvives(t reflect.Type, seen map[reflect.Type]bool) error {
	if t.NumField() == 0 { // struct{} has nothing to lose
		return nil
	}
	exported := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("msgpack") == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		exported++
		if err := survives(f.Type, seen); err != nil {
			return fmt.Errorf("field %s of %v: %w", f.Name, t, err)
		}
	}
	if exported == 0 {
		return fmt.Errorf("stampede: %v has only unexported fields: nothing of it would be encoded", t)
	}
	return nil
}

// typeCheck is what entries of type t carry, encoded by c or as they are, so that others are a miss.
func typeCheck(t reflect.Type, c Codec, encoded bool) uint64 {
	form := "as is"
	if encoded {
		form = c.Name()
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s\x00%s", form, typeName(t))
	return h.Sum64()
}

// typeName is the name of t with the whole paths of packages, which t.String has not.
func typeName(t reflect.Type) string {
	if t.Name() != "" {
		return t.PkgPath() + "." + t.Name()
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + typeName(t.Elem())
	case reflect.Slice:
		return "[]" + typeName(t.Elem())
	case reflect.Array:
		return fmt.Sprintf("[%d]%s", t.Len(), typeName(t.Elem()))
	case reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	case reflect.Struct:
		name := "struct{"
		for i := range t.NumField() {
			name += t.Field(i).Name + " " + typeName(t.Field(i).Type) + ";"
		}
		return name + "}"
	}
	return t.String()
}

// encode makes the payload of v. A codec is user code: a panic in it is an error here.
func encode(c Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("stampede: codec %s panicked: %v", c.Name(), p)
		}
	}()
	if data, err = c.Marshal(v); err == nil && data == nil {
		data = []byte{}
	}
	return data, err
}

// decode is the reverse of encode.
func decode[T any](c Codec, data []byte) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("stampede: codec %s panicked: %v", c.Name(), p)
		}
	}()
	err = c.Unmarshal(data, &v)
	return v, err
}
