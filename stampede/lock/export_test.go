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
