package housetest

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

// The words are put together here so that this file does not hold them itself.
var (
	// A path of somebody's own machine, at the start of a word.
	machinePath = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=:,<>|])(?:/(?:home|root|work|Users|mnt|tmp)/[\w.-]|[A-Z]:\\Users\\)`)
	// A promise to do something later; context.TODO is Go's.
	unfinished = regexp.MustCompile(`(?:^|[^.\w])(?:TO` + `DO|FIX` + `ME)(?:[^\w]|$)`)
	// A place for something that is to be filled in.
	placeholder = regexp.MustCompile(`@@[A-Z]\w*@@`)
)

func TestTextNamesNoMachineAndLeavesNothingOpen(t *testing.T) {
	for _, name := range files(t) {
		b := contents(t, name)
		if bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 {
			continue // not text
		}
		number := 0
		for line := range bytes.Lines(b) {
			number++
			if machinePath.Match(line) {
				t.Errorf("%s:%d: a path that exists on one machine only: %s", name, number, bytes.TrimSpace(line))
			}
			if placeholder.Match(line) {
				t.Errorf("%s:%d: not filled in: %s", name, number, bytes.TrimSpace(line))
			}
			if unfinished.Match(line) {
				t.Errorf("%s:%d: unfinished; do it or open an issue: %s", name, number, bytes.TrimSpace(line))
			}
		}
	}
}

func TestTextPatternsTellGoodFromBad(t *testing.T) {
	for text, want := range map[string]bool{
		`cd /ho` + `me/ann/src`:              true,
		`"/ro` + `ot/x"`:                     true,
		`dir=/wo` + `rk/tree`:                true,
		`https://example.com/home/page`:      false,
		`GET /users/42`:                      false,
		`"/home"`:                            false,
		`// TO` + `DO: later`:                true,
		`FIX` + `ME`:                         true,
		`ctx := context.TO` + `DO()`:         false,
		`the test doubles its MAXTODOS here`: false,
		`@` + `@SPEED@` + `@`:                true,
		`@@ -1,2 +3,4 @@ func A`:             false,
	} {
		got := machinePath.MatchString(text) || unfinished.MatchString(text) || placeholder.MatchString(text)
		if got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

// A script's head is its signature: without it nobody can call the script rightly.
// A part that other scripts share, which touches no key itself, only has to say
// what it is.
func TestScriptsOpenWithTheirSignature(t *testing.T) {
	for _, name := range files(t) {
		if !strings.HasSuffix(name, ".lua") {
			continue
		}
		head, body := splitScript(string(contents(t, name)))
		if strings.TrimSpace(head) == "" {
			t.Errorf("%s: does not open with a comment", name)
			continue
		}
		if !callsRedis.MatchString(body) {
			continue
		}
		for _, word := range []string{"keys", "argv", "return"} {
			if !strings.Contains(strings.ToLower(head), word) {
				t.Errorf("%s: the comment at its top does not say %s", name, word)
			}
		}
	}
}

var callsRedis = regexp.MustCompile(`\b(?:KEYS|ARGV|redis)\b`)

// splitScript parts a script's opening comment, without its dashes, from the rest.
func splitScript(text string) (head, body string) {
	for line := range strings.Lines(text) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "--")
		if !ok || body != "" {
			body += line
			continue
		}
		head += comment + "\n"
	}
	return head, body
}
