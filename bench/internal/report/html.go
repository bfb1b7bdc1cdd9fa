package report

import "io"

func (b *Book) HTML(w io.Writer) error { return nil }
