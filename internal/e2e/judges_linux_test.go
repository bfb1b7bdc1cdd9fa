package e2e_test

import (
	"strings"
	"testing"
	"time"
)

// story makes a history by hand. Times are milliseconds.
type story struct {
	records []record
	effects []effect
	calls   int
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func (s *story) load(value string, from, to int) *story {
	s.records = append(s.records,
		record{At: ms(from), Kind: loadBegan, Pod: "p", Key: "k", Value: value},
		record{At: ms(to), Kind: loadEnded, Pod: "p", Key: "k", Value: value})
	return s
}

// call is a call that returned; to zero: it never did.
func (s *story) call(op, value string, from, to int, edit ...func(*record)) *story {
	s.calls++
	r := record{At: ms(from), Kind: invoked, Pod: "p", Call: s.calls, Op: op, Key: "k", Value: value}
	s.records = append(s.records, r)
	if to > 0 {
		r.At, r.Kind = ms(to), returned
		for _, f := range edit {
			f(&r)
		}
		s.records = append(s.records, r)
	}
	return s
}

func (s *story) wrote(value string, at int) *story {
	s.effects = append(s.effects, effect{at: ms(at), key: "k", value: value, life: playedTTL + time.Second})
	return s
}

func (s *story) removed(at int) *story {
	s.effects = append(s.effects, effect{at: ms(at), key: "k"})
	return s
}

func (s *story) expired(at int) *story {
	s.effects = append(s.effects, effect{at: ms(at), key: "k", stale: true})
	return s
}

func fresh(r *record)   { r.Fresh = true }
func kept(r *record)    { r.Stored = true }
func unknown(r *record) { r.Err = "outcome unknown" }

// Each kind of bad history is found by the judge that sees calls only, and by the one that sees what Redis did. A judge that
// finds nothing wrong with anything would prove nothing.
func TestJudgesTellGoodHistoriesFromBad(t *testing.T) {
	for _, c := range []struct {
		name           string
		story          *story
		calls, effects string // what must be found; empty: nothing may be
	}{
		{
			name: "a value is loaded, kept, deleted and loaded anew",
			story: new(story).load("a", 10, 20).wrote("a", 21).call("get", "a", 5, 22, fresh, kept).call("get", "a", 30, 31, fresh, kept).
				call("delete", "", 40, 42).removed(41).load("b", 45, 55).wrote("b", 56).call("get", "b", 43, 57, fresh, kept),
		},
		{
			name: "a deleted value comes back",
			story: new(story).load("a", 10, 20).wrote("a", 21).call("get", "a", 5, 22, fresh, kept).
				call("delete", "", 40, 42).removed(41).call("get", "a", 50, 51),
			calls: "though a delete", effects: "was in the store at no such time",
		},
		{
			name: "a value that was loaded before a delete is returned after it",
			story: new(story).load("a", 10, 60).call("delete", "", 40, 42).removed(41).call("get", "a", 50, 61, fresh).
				call("get", "a", 5, 61, fresh),
			calls: "though a delete", effects: "was in the store at no such time",
		},
		{
			name: "a get that overlaps a delete returns what was there before",
			story: new(story).load("a", 10, 20).wrote("a", 21).call("get", "a", 5, 22, fresh, kept).
				call("delete", "", 40, 60).removed(50).call("get", "a", 45, 47, fresh, kept),
		},
		{
			name: "a late write wins",
			story: new(story).load("a", 10, 90).load("b", 30, 40).wrote("b", 41).call("get", "b", 5, 42, fresh, kept).
				wrote("a", 91).call("get", "a", 95, 96, fresh, kept),
			calls: "though a load b", effects: "a late write won",
		},
		{
			name: "a late write wins over a set",
			story: new(story).load("a", 10, 90).call("set", "s", 30, 32).wrote("s", 31).
				wrote("a", 91).call("get", "a", 95, 96, fresh, kept),
			calls: "though a set s", effects: "a late write won",
		},
		{
			name: "a set value comes back after another one",
			story: new(story).call("set", "s", 10, 12).wrote("s", 11).call("set", "t", 20, 22).wrote("t", 21).
				call("get", "s", 30, 31, fresh, kept),
			calls: "though a set t", effects: "was in the store at no such time",
		},
		{
			name: "a set of which nobody knows what came lands late",
			story: new(story).call("set", "s", 10, 12, unknown).load("a", 14, 16).wrote("a", 17).call("get", "a", 13, 18, fresh, kept).
				wrote("s", 40).call("get", "s", 50, 51, fresh, kept),
		},
		{
			name: "a set of a pod that was killed has landed and was overwritten",
			story: new(story).call("set", "s", 10, 0).wrote("s", 11).call("get", "s", 12, 13, fresh, kept).load("a", 30, 40).wrote("a", 41).
				call("get", "a", 42, 43, fresh, kept).call("get", "s", 50, 51, kept),
			calls: "though a load a", effects: "was in the store at no such time",
		},
		{
			name: "a delete of which nobody knows what came changed nothing",
			story: new(story).load("a", 10, 20).wrote("a", 21).call("get", "a", 5, 22, fresh, kept).
				call("delete", "", 40, 42, unknown).call("get", "a", 50, 51, fresh, kept),
		},
		{
			name:  "a value from nowhere",
			story: new(story).load("a", 10, 20).call("get", "x", 15, 25, fresh),
			calls: "from nowhere",
		},
		{
			name:    "a value from nowhere in Redis",
			story:   new(story).wrote("x", 10),
			effects: "from nowhere",
		},
		{
			name:  "a value before it was made",
			story: new(story).call("get", "a", 1, 5, fresh).load("a", 10, 20),
			calls: "before that was made",
		},
		{
			name: "an expired value is served as stale",
			story: new(story).load("a", 10, 20).wrote("a", 21).call("expire", "", 40, 42).expired(41).
				call("get", "a", 50, 51, kept),
		},
		{
			name: "an expired value is flagged fresh",
			story: new(story).load("a", 10, 20).wrote("a", 21).call("expire", "", 40, 42).expired(41).
				call("get", "a", 50, 51, fresh, kept),
			calls: "as fresh", effects: "as fresh",
		},
		{
			name: "a value whose tag has expired is flagged fresh",
			story: new(story).load("<p.l1>", 10, 20).wrote("<p.l1>", 21).call("expiretag", "", 40, 42).
				call("get", "<p.l1>", 50, 51, fresh, kept),
			calls: "as fresh",
		},
		{
			name: "a value without tags outlives the expiry of one",
			story: new(story).load("<p.m1>", 10, 20).wrote("<p.m1>", 21).call("expiretag", "", 40, 42).
				call("get", "<p.m1>", 50, 51, fresh, kept),
		},
		{
			name:    "a value past its TTL is flagged fresh",
			story:   new(story).load("a", 10, 20).wrote("a", 21).call("get", "a", 250, 251, fresh, kept),
			effects: "as fresh",
		},
		{
			name: "a loader's error is passed on",
			story: new(story).load("a", 10, 20).call("get", "", 5, 21, func(r *record) {
				r.Err = errSource.Error()
			}),
		},
		{
			name:  "a caller sees an error of Redis",
			story: new(story).call("get", "", 5, 21, func(r *record) { r.Err = "READONLY" }),
			calls: "not its loader's error",
		},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			compare(t, "the judge of calls", judgeCalls(c.story.records), c.calls)
			compare(t, "the judge of effects", judgeEffects(c.story.records, c.story.effects), c.effects)
		})
	}
}

func compare(t *testing.T, who string, faults []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(faults) > 0:
		t.Errorf("%s finds fault with a good history: %v", who, faults)
	case want != "" && len(faults) == 0:
		t.Errorf("%s finds nothing wrong", who)
	case want != "" && !strings.Contains(strings.Join(faults, "\n"), want):
		t.Errorf("%s finds %v, want %q", who, faults, want)
	}
}

func TestMonitorLinesAreRead(t *testing.T) {
	for line, want := range map[string]effect{
		`+1700000000.500000 [0 lua] "SET" "e2e:{0a1b2c3d}:v:k1" "hg\x01\x00\"\xff\xa9<p1.l12>" "PX" "1150"`: {
			at: 500 * time.Millisecond, key: "k1", value: "<p1.l12>", life: 1150 * time.Millisecond},
		`+1700000000.000001 [0 127.0.0.1:5000] "unlink" "e2e:{0a1b2c3d}:v:k1" "e2e:{0a1b2c3d}:l:k1"`: {at: time.Microsecond, key: "k1"},
		`+1700000000.000000 [0 lua] "SETRANGE" "e2e:{0a1b2c3d}:v:k1" "3" "\x02"`:                     {key: "k1", stale: true},
	} {
		if got, ok := parseEffect(line, 1700000000*time.Second); !ok || got != want {
			t.Errorf("%s: got %+v, %v", line, got, ok)
		}
	}
	for _, line := range []string{
		`+1700000000.500000 [0 lua] "SET" "e2e:{0a1b2c3d}:l:k1" "L<p1.l12>" "PX" "200"`,
		`+1700000000.500000 [0 127.0.0.1:5000] "evalsha" "0" "2" "e2e:{0a1b2c3d}:v:k1" "e2e:{0a1b2c3d}:l:k1" "<p1.l12>"`,
		`+1700000000.500000 [0 127.0.0.1:5000] "get" "e2e:{0a1b2c3d}:v:k1"`,
	} {
		if e, ok := parseEffect(line, 0); ok {
			t.Errorf("%s: taken for %+v", line, e)
		}
	}
}
