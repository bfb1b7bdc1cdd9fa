package modeltest

// mutant is a fault that the store is given on purpose: the checks must find it.
type mutant uint8

const (
	sound mutant = iota
	commitUnchecked
	noNonce
	electBlind
	electIgnoresSeen
	deleteLeavesLease
	setLeavesLease
	expireSilent
	expireKeepsStamp
	publishFirst
	releaseUnchecked
	tagKeepsNumber
	tagsForgotten
	sameEpoch
	numMutants
)

// ofTags says whether the fault shows only where there are tags.
func (m mutant) ofTags() bool { return m >= tagKeepsNumber }

var mutantNames = [numMutants]string{
	"sound",
	"commit does not look at the lease",
	"a grant makes no nonce",
	"elect does not look at the entry",
	"elect ignores which entry the caller has seen",
	"delete leaves the lease",
	"set leaves the lease",
	"expire is not published",
	"expire keeps the stamp",
	"delete is published before it is done",
	"release does not look at the lease",
	"the number does not grow with an ExpireTag",
	"tags are forgotten without a floor",
	"a record that was lost begins again with the same epoch",
}
