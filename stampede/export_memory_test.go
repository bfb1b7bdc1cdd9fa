package stampede

// Len returns the number of entries held, expired ones too.
func (s *MemoryStore) Len() (n int) {
	for _, sh := range s.shards {
		sh.mu.Lock()
		n += sh.entries.Len()
		sh.mu.Unlock()
	}
	return n
}

// Leases returns the number of leases and markers held, expired ones too.
func (s *MemoryStore) Leases() (n int) {
	for _, sh := range s.shards {
		sh.mu.Lock()
		n += len(sh.leases)
		sh.mu.Unlock()
	}
	return n
}

// Watches returns the number of watches that are open.
func (s *MemoryStore) Watches() (n int) {
	for _, sh := range s.shards {
		sh.mu.Lock()
		for _, watches := range sh.watches {
			n += len(watches)
		}
		sh.mu.Unlock()
	}
	return n
}
