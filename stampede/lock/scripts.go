package lock

import (
	_ "embed"

	"github.com/redis/go-redis/v9"

	"github.com/herdgate/herdgate/internal/leases"
)

// The scripts. They use no shebang line: with one, Redis would refuse a whole script when memory is full,
// even one that only releases.
var (
	//go:embed scripts/take.lua
	takeLua string
	//go:embed scripts/acquire.lua
	acquireLua string
	//go:embed scripts/queue.lua
	queueLua string
	//go:embed scripts/pass.lua
	passLua string
	//go:embed scripts/join.lua
	joinLua string
	//go:embed scripts/marker.lua
	markerLua string
	//go:embed scripts/joinfenced.lua
	joinFencedLua string
	//go:embed scripts/accept.lua
	acceptLua string
	//go:embed scripts/confirm.lua
	confirmLua string
	//go:embed scripts/claim.lua
	claimLua string
	//go:embed scripts/seed.lua
	seedLua string
	//go:embed scripts/raise.lua
	raiseLua string

	acquireScript = leases.NewScript(leases.NonceLua + takeLua + queueLua + acquireLua)
	passScript    = leases.NewScript("local function release(KEYS, ARGV)\n" + leases.ReleaseLua + "\nend\n" + queueLua + passLua)
	joinScript    = leases.NewScript(leases.NonceLua + takeLua + joinLua)
	releaseScript = leases.NewScript(leases.ReleaseLua)
	renewScript   = leases.NewScript(leases.RenewLua)

	joinFencedScript = leases.NewScript(leases.NonceLua + takeLua + markerLua + joinFencedLua)
	acceptScript     = leases.NewScript(markerLua + acceptLua)
	confirmScript    = leases.NewScript(markerLua + confirmLua)
	claimScript      = redis.NewScript(markerLua + claimLua)
	seedScript       = redis.NewScript(markerLua + seedLua)
	raiseScript      = redis.NewScript(markerLua + raiseLua)
)

// The kinds of things that are kept for a lock.
const (
	kindLock    = 'k'
	kindFence   = 'f'
	kindChannel = 'u' // and queue
)

// What several servers have besides, one of each; see scripts/marker.lua.
const (
	markerKey = ":m"
	claimKey  = ":c"
	seedKey   = ":s" // who seeds has this lock
)
