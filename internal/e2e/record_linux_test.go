package e2e_test

import (
	"encoding/json"
	"io"
	"sync"
	"time"
)

// record is something that happened in a pod, at a time that holds for all processes.
type record struct {
	At    time.Duration
	Kind  recordKind
	Pod   string `json:",omitempty"`
	Call  int    `json:",omitempty"` // a call and its return share a number, unique in its pod
	Op    string `json:",omitempty"`
	Key   string `json:",omitempty"`
	Value string `json:",omitempty"` // unique for each load and each Set
	Fresh bool   `json:",omitempty"` // the value was returned as fresh
	// Stored: the value was in the store when it was returned, or shortly before.
	Stored bool   `json:",omitempty"`
	Err    string `json:",omitempty"`
}

type recordKind string

const (
	loadBegan recordKind = "load began"
	loadEnded recordKind = "load ended"
	invoked   recordKind = "invoked"
	returned  recordKind = "returned"
	ended     recordKind = "ended"
)

// log takes records. Each is written at once, so that a process that is killed leaves what it has done.
type log struct {
	w io.Writer // nil: they are only kept

	mu   sync.Mutex // protects w and kept
	kept []record
}

// add stamps r with the time and takes it.
func (l *log) add(r record) {
	r.At = sinceBoot()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.w == nil {
		l.kept = append(l.kept, r)
		return
	}
	line, _ := json.Marshal(r)
	_, _ = l.w.Write(append(line, '\n'))
}

func (l *log) records() []record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}
