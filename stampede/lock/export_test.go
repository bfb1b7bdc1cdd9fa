package lock

// Waiting returns how many of this process stand in line for a lock.
func Waiting(lk *Locker, name string) int {
	lk.lines.mu.Lock()
	defer lk.lines.mu.Unlock()
	if ln := lk.lines.all[name]; ln != nil {
		return len(ln.waiters)
	}
	return 0
}

// Keepers returns how many keep l.
func Keepers(l *Lock) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keepers)
}
