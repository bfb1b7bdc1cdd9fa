package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// ReplyError is an error reply of a Redis server.
type ReplyError string

// Error returns the text of the reply.
func (e ReplyError) Error() string { return string(e) }

// doTimeout bounds one command, connecting included.
const doTimeout = 2 * time.Second

// do sends one command on a connection of its own and returns the reply: a string, an int64, a []any or nil.
func do(ctx context.Context, addr string, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, doTimeout)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	var request strings.Builder
	fmt.Fprintf(&request, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&request, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(conn, request.String()); err != nil {
		return nil, err
	}
	reply, err := readReply(bufio.NewReader(conn))
	if err != nil {
		return nil, fmt.Errorf("redisproc: %s to %s: %w", strings.Join(args, " "), addr, err)
	}
	return reply, nil
}

// doString is do for commands that answer with a string.
func doString(ctx context.Context, addr string, args ...string) (string, error) {
	reply, err := do(ctx, addr, args...)
	if err != nil {
		return "", err
	}
	s, ok := reply.(string)
	if !ok {
		return "", fmt.Errorf("redisproc: %s to %s: a string was expected, not %v", strings.Join(args, " "), addr, reply)
	}
	return s, nil
}

// readReply reads one RESP2 reply.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("empty reply line")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return nil, ReplyError(rest)
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return nil, fmt.Errorf("bad reply line %q", line)
	}
	switch {
	case n < 0:
		return nil, nil
	case kind == '$':
		data := make([]byte, n+len("\r\n"))
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, err
		}
		return string(data[:n]), nil
	case kind == '*':
		items := make([]any, n)
		for i := range items {
			// An error inside an array is an item like the others.
			var refused ReplyError
			item, err := readReply(r)
			if errors.As(err, &refused) {
				item = refused
			} else if err != nil {
				return nil, err
			}
			items[i] = item
		}
		return items, nil
	}
	return nil, fmt.Errorf("unknown reply line %q", line)
}

// field returns the value of name in text of lines "name:value", such as the reply to INFO.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// pairs makes a map of a reply that lists names and values by turns.
func pairs(reply any) map[string]string {
	items, _ := reply.([]any)
	m := make(map[string]string, len(items)/2)
	for i := 0; i+1 < len(items); i += 2 {
		m[fmt.Sprint(items[i])] = fmt.Sprint(items[i+1])
	}
	return m
}
