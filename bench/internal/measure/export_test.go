package measure

// ReadAlong returns what a connection does with what is written to it.
func ReadAlong() func(p []byte) {
	c := counts{byName: make(map[string]*command)}
	return c.read
}
