package redisproc

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// table is what a node answers to CLUSTER NODES.
type table []tableRow

type tableRow struct {
	id, addr, masterID string
	flags              []string
	slots              []string // "first-last" or "slot"
}

func nodeTable(ctx context.Context, s *Server) (table, error) {
	text, err := doString(ctx, s.Addr(), "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	var t table
	for line := range strings.Lines(text) {
		// id ip:port@busport[,hostname] flags master-id ping pong epoch link-state slots...
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("redisproc: %s: bad line of CLUSTER NODES: %q", s.Addr(), line)
		}
		addr, _, _ := strings.Cut(f[1], "@")
		t = append(t, tableRow{id: f[0], addr: addr, masterID: strings.Trim(f[3], "-"), flags: strings.Split(f[2], ","), slots: f[8:]})
	}
	return t, nil
}

// self returns the row of the node that was asked.
func (t table) self() tableRow {
	return t.find(func(r tableRow) bool { return r.is("myself") })
}

// masterOf returns the row of the node that serves slot, or an empty one.
func (t table) masterOf(slot int) tableRow {
	return t.find(func(r tableRow) bool { return r.serves(slot) })
}

func (t table) find(match func(tableRow) bool) tableRow {
	if i := slices.IndexFunc(t, match); i >= 0 {
		return t[i]
	}
	return tableRow{}
}

// complete reports as an error that not every node is known and well, or that the replicas are not spread over the masters.
func (t table) complete() error {
	if len(t) != nodeCount {
		return fmt.Errorf("%d of %d nodes known", len(t), nodeCount)
	}
	masters := map[string]bool{}
	for _, r := range t {
		if r.is("handshake") || r.is("noaddr") || r.is("fail") || r.is("fail?") {
			return fmt.Errorf("node %s is %v", r.addr, r.flags)
		}
		if r.masterID != "" {
			masters[r.masterID] = true
		}
	}
	if len(masters) != masterCount {
		return fmt.Errorf("%d of %d masters have a replica", len(masters), masterCount)
	}
	return nil
}

func (r tableRow) is(flag string) bool {
	return slices.Contains(r.flags, flag)
}

func (r tableRow) serves(slot int) bool {
	return slices.ContainsFunc(r.slots, func(s string) bool {
		first, last, isRange := strings.Cut(s, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last) // a slot on the move, "[93->-id]", is no number
		return err1 == nil && err2 == nil && from <= slot && slot <= to
	})
}
