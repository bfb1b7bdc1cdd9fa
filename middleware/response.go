package middleware

import (
	"crypto/rand"
	"strconv"
	"time"

	"github.com/herdgate/herdgate/internal/kept"
)

// stored is what the store holds: a response, or, for a URL with several of them, what they depend on. It
// is shared and must not be changed.
type stored struct {
	key key // the entry's own; compared on each hit

	// A spec, if gen is not zero: the response is stored under a key of its own, made of the
	// generation and what the request has for the dimensions of the policy and the fields of Vary.
	gen  generation
	vary []string

	// A response, else.
	status   int
	fields   []field
	body     []byte
	age      time.Duration // when it was stored
	errorFor time.Duration // how long after its lifetime it may be served when the handler fails
	validate bool          // not to be used without asking the handler
	public   bool          // may be given to requests with credentials

	streamed bool // never stored: the response is not here, it goes to the leader alone
}

// generation tells the times between two invalidations of a URL apart. It is random, never zero.
type generation [16]byte

func newGeneration() (g generation) {
	_, _ = rand.Read(g[:]) // never fails
	return g
}

// ServesFor makes the guard know that a response may be kept for longer, so that it can be confirmed.
func (s *stored) ServesFor() kept.For {
	if s == nil {
		return 0
	}
	return kept.For(s.errorFor)
}

func (s *stored) isSpec() bool { return s.gen != generation{} }

// line returns the only line of a field, "" if there is none or several.
func (s *stored) line(name string) string {
	if lines := s.lines(name); len(lines) == 1 {
		return lines[0]
	}
	return ""
}

func (s *stored) lines(name string) []string {
	for i := range s.fields {
		if s.fields[i].name == name {
			return s.fields[i].values
		}
	}
	return nil
}

// response makes what is stored.
func (p *policy) response(j *judgement, status int, fields []field, body []byte) *stored {
	s := &stored{
		status: status, fields: p.kept(fields), body: body, age: j.age,
		validate: j.validate, public: j.public,
	}
	s.errorFor = max(j.life.staleIfError, j.life.stale, 0)
	if j.validate {
		s.errorFor = max(j.life.fresh+s.errorFor, 0) // counts from when it was stored
	}
	if j.override {
		p.overrideFields(s)
	}
	s.complete()
	return s
}

// complete adds what net/http would add, so that hits need not. A Content-Type is not guessed here: a layer outside
// may name one for its own request, and it is that which counts.
func (s *stored) complete() {
	if bodyAllowed(s.status) && indexField(s.fields, "Content-Length") < 0 {
		s.fields = append(s.fields, field{name: "Content-Length", values: []string{strconv.Itoa(len(s.body))}})
	}
}

func (p *policy) overrideFields(s *stored) {
	life := p.ttl(s.status)
	fields := s.fields[:0]
	seen := false
	for _, f := range s.fields {
		switch f.name {
		case "Expires", "Pragma":
			continue
		case "Cache-Control":
			f.values, seen = []string{overrideMaxAge(f.values, life)}, true
		}
		fields = append(fields, f)
	}
	if !seen {
		fields = append(fields, field{name: "Cache-Control", values: []string{overrideMaxAge(nil, life)}})
	}
	s.fields = fields
}
