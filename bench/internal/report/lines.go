package report

import (
	"bufio"
	"io"
)

// Lines writes all results as lines of JSON, which Read reads.
func (b *Book) Lines(to io.Writer) error {
	w := bufio.NewWriter(to)
	if err := WriteLine(w, b.Run); err != nil {
		return err
	}
	for _, r := range b.Results {
		if err := WriteLine(w, r); err != nil {
			return err
		}
	}
	return w.Flush()
}
