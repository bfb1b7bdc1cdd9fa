package keyname_test

import (
	"strings"
	"testing"

	"github.com/herdgate/herdgate/internal/keyname"
)

func TestNamesAreThoseOfEachKind(t *testing.T) {
	for _, key := range []string{"k", "{a}b", "}x:k:", strings.Repeat("k", 600), "{t}" + strings.Repeat("k", 600)} {
		n, err := keyname.Of("space", key)
		if err != nil {
			t.Fatal(err)
		}
		for i, kind := range []byte("kfu") {
			if got, want := n.Names('k', 'f', 'u')[i], n.Name(kind); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}
