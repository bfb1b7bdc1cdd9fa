package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/herdgate/herdgate/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.IgnoreServers()) }

func TestOldWriterWinsWithoutAFenceAndIsRefusedWithOne(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	srv := redistest.Server(t)
	for name, args := range map[string][]string{"stand-in": nil, "real": {"-redis", srv.Addr()}} {
		var out, errs bytes.Buffer
		if code := command(t.Context(), args, &out, &errs); code != 0 {
			t.Fatalf("%s: exit %d: %s", name, code, errs.String())
		}
		text := out.String()
		for _, want := range []string{
			`(?s)Without a fencing number.*the storage takes it.*The price is 17.00: wrong`,
			`(?s)With a fencing number.*refuses.*The price is 18.50: right`,
			`number n\+[1-9]`,
		} {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("%s: no %q in\n%s", name, want, text)
			}
		}
	}
	left, err := srv.Do(t.Context(), "KEYS", "*")
	if keys, _ := left.([]any); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestWrongArgumentsAndNoRedisAreSaid(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-h"}, 0, "stand-in"},
		{[]string{"-nonsense"}, 2, "nonsense"},
		{[]string{"-redis", "127.0.0.1:1"}, 1, "127.0.0.1:1"},
		{[]string{"-redis", "http://x"}, 1, "-redis"},
	} {
		var out, errs bytes.Buffer
		if code := command(t.Context(), c.args, &out, &errs); code != c.code || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%q: exit %d: %s", c.args, code, errs.String())
		}
	}
}
