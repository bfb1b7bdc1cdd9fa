package middleware_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/herdgate/herdgate/middleware"
)

func TestStoredResponsesSurviveTheirCodec(t *testing.T) {
	for _, h := range []http.Header{nil, {"A": {"1", "2"}, "Content-Type": nil, "B": {""}}} {
		data, err := middleware.Encoded("key", http.StatusTeapot, h, []byte("body\x00"), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		again, err := middleware.Recoded(data)
		if err != nil || !bytes.Equal(data, again) {
			t.Errorf("%q\n%q %v", data, again, err)
		}
		for i := range data {
			if i < len(data)-5 { // a body may have any length
				if _, err := middleware.Recoded(data[:i]); err == nil {
					t.Errorf("the first %d bytes were taken for a response", i)
				}
			}
		}
	}
	data, err := middleware.EncodedSpec("key", "Accept", "Foo")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := middleware.Recoded(data); err != nil || !bytes.Equal(data, again) {
		t.Errorf("%q\n%q %v", data, again, err)
	}
}

func FuzzStored(f *testing.F) {
	for _, h := range []http.Header{nil, {"A": {"1", "2"}}} {
		data, _ := middleware.Encoded("key", http.StatusOK, h, []byte("body"), time.Second)
		f.Add(data)
	}
	spec, _ := middleware.EncodedSpec("key", "Foo")
	f.Add(spec)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		again, err := middleware.Recoded(data)
		if err != nil {
			return
		}
		third, err := middleware.Recoded(again)
		if err != nil || !bytes.Equal(again, third) {
			t.Errorf("%q\n%q\n%q %v", data, again, third, err)
		}
	})
}
