// Package leases is what the guard's leases and the locks for application code have in common: what is
// kept in Redis for one, and the scripts that renew and end it.
//
// A lease is a string with a PX: "L", then the token of who asked for it, 16 random bytes, new for each
// attempt, then a nonce that the granting script makes. Token and nonce are the stamp. All that is done in
// the lease's name presents the exact stamp. What may follow, the count of failed loads, is the guard's.
package leases

import (
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// TokenSize is the length of a token.
	TokenSize = 16
	// StampSize is the length of a stamp.
	StampSize = 32
)

var (
	// NonceLua goes before a script that grants leases.
	//go:embed scripts/nonce.lua
	NonceLua string
	// RenewLua is the text of Renew.
	//go:embed scripts/renew.lua
	RenewLua string
	// ReleaseLua is the text of Release.
	//go:embed scripts/release.lua
	ReleaseLua string

	// Renew lets a lease end later.
	Renew = redis.NewScript(RenewLua)
	// Release ends a lease.
	Release = redis.NewScript(ReleaseLua)
)

// What Renew answers.
const (
	Held   = 1
	Absent = 2
	Taken  = 3
)

// Millis is d in whole milliseconds, as an argument for PX: at least 1.
func Millis(d time.Duration) int64 { return max(d.Milliseconds(), 1) }
