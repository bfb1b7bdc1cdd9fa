package modeltest

// sight is something that has to come about now and then, or the checks would be about nothing.
type sight uint8

const (
	sawGrant sight = iota
	sawFollower
	sawMarker
	sawCommit
	sawMarked
	sawHedge
	sawRefused
	sawTaken
	sawLoad
	sawUnleased
	sawCopy
	sawLocal
	sawOlderLoad
	sawServed
	sawStaleCalm
	sawProbe
	sawExpireTag
	sawTagStale
	sawUnread
	sawUnreadLed
	sawUnreadFresh
	sawUnreadStale
	sawUnreadLost
	sawUnreadJoined
	numSights
)

var sightNames = [numSights]string{
	"leases granted", "elections that made followers", "elections answered with a marker", "commits accepted", "commits under a marker", "loads beside another pod's",
	"commits refused", "leases found taken", "loads", "loads without a lease", "copies served", "copies served without asking", "values of loads from before the call",
	"calm calls that had to be served", "calm calls that had to load behind",
	"leases granted after a back-off", "tags expired", "entries expired by a tag and served stale",
	"elections without a read", "such elections that were granted a lease", "such elections that found something fresh", "something stale", "such elections without an answer",
	"values of the store for callers who asked it nothing",
}

func (w *world) saw(s sight) { w.seen[s]++ }
