package faultproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
)

// readFrame returns the bytes of the next request or reply. Anything that is no RESP value counts as an inline request: one line.
func readFrame(r *bufio.Reader) ([]byte, error) {
	return appendFrame(nil, r)
}

func appendFrame(frame []byte, r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	frame = append(frame, line...)
	var items int
	switch line[0] {
	case '$', '=', '!':
		n, err := length(line)
		if err != nil || n < 0 {
			return frame, err
		}
		start := len(frame)
		frame = append(frame, make([]byte, n+len("\r\n"))...)
		_, err = io.ReadFull(r, frame[start:])
		return frame, err
	case '*', '~', '>':
		items, err = length(line)
	case '%':
		items, err = length(line)
		items *= 2
	case '|': // attributes come before the value that they describe
		items, err = length(line)
		items = 2*items + 1
	}
	for range items {
		if err != nil {
			break
		}
		frame, err = appendFrame(frame, r)
	}
	return frame, err
}

func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return 0, fmt.Errorf("faultproxy: bad length in %q", line)
	}
	return n, nil
}

// isPush reports whether a reply comes unasked for, as messages do in RESP3.
func isPush(reply []byte) bool {
	return reply[0] == '>'
}

// isSubscription reports whether a request is answered by messages instead of a reply.
func isSubscription(request []byte) bool {
	// *2\r\n$9\r\nSUBSCRIBE\r\n...
	parts := bytes.SplitN(request, []byte("\r\n"), 4)
	return len(parts) > 2 && bytes.HasSuffix(bytes.ToLower(parts[2]), []byte("subscribe"))
}
