package stampedetest_test

import (
	"testing"

	"github.com/herdgate/herdgate/stampede"
	"github.com/herdgate/herdgate/stampede/stampedetest"
)

var referenceOptions = []stampedetest.Option{stampedetest.Garbage(garble), stampedetest.Silence(hush)}

func TestReferenceKeepsTheContract(t *testing.T) {
	stampedetest.TestStore(t, func(*testing.T) stampede.Store { return newReference("") },
		append(referenceOptions, stampedetest.InBubble())...)
}

// rules are what a store can do wrong: each is broken on its own, and the test of the suite that is
// named with it must say so.
var rules = map[string]string{
	"slow":                                 "EveryStepReturnsByItsDeadline",
	"silence without an error":             "ASilentStoreReturnsAnErrorByTheDeadline",
	"deaf to the deadline":                 "ASilentStoreReturnsAnErrorByTheDeadline",
	"errors without a value":               "AnErrorNeverCarriesAnAnswer",
	"ghosts are given back":                "ASilentStoreGivesBackTheLeasesThatItMayHaveTaken",
	"set says that its outcome is unknown": "ASilentStoreReturnsAnErrorByTheDeadline",
	"health asks":                          "ASilentStoreReturnsAnErrorByTheDeadline",

	"braces are cut":                      "KeysKeepEntriesApart",
	"spaces are cut":                      "KeysKeepLeasesApart",
	"case is lost":                        "KeysKeepEntriesApart",
	"keys are C strings":                  "KeysKeepEntriesApart",
	"keys are valid UTF-8":                "KeysKeepEntriesApart",
	"long keys are cut":                   "KeysKeepEntriesApart",
	"space and key run together":          "KeysAreOfTheirSpace",
	"space and key are joined by a colon": "KeysAreOfTheirSpace",

	"entries die":                      "ReadOfAnEntryWithoutWindowsEndsWithItsTTL",
	"garbage is a fault":               "GarbageIsAMissWithAFault",
	"the store makes the stamp":        "CommitIgnoresWhatTheStoreSets",
	"writers cannot expire":            "ReadReturnsOnlyWhatTheStoreSets",
	"durations are whole milliseconds": "ReadRoundsDownToMilliseconds",
	"life counts the longer window":    "ReadClassifiesByTheWritersWindows",
	"type is kept":                     "ReadReturnsWhatWasWritten",
	"duration is kept":                 "ReadReturnsWhatWasWritten",
	"not found is kept":                "ReadReturnsThatThereIsNoSuchThing",
	"data is kept whole":               "ReadReturnsBytesAsTheyAre",

	"elect looks at the entry first": "ElectLooksAtTheEntryBeforeTheLease",
	"elect looks at the entry again": "ElectReturnsAFreshEntryOfAnotherVersion",
	"elect heeds the version seen":   "ElectReplacesAFreshEntryThatTheCallerHasSeen",
	"elect heeds freshness":          "ElectElectsOnceTheEntryIsNotFresh",
	"elect looks through garbage":    "GarbageIsReplaced",
	"elect returns the fresh entry":  "ElectReturnsThatThereIsNoSuchThing",
	"elect knows its own lease":      "ElectAnswersTheSameTokenAlike",
	"own lease keeps its nonce":      "ElectAfterARenewalAnswersTheSameTokenAlike",
	"own lease is not prolonged":     "ElectDoesNotProlongTheLeaseOfTheSameToken",
	"elect grants once":              "OneOfACrowdLeads",
	"grants have a nonce":            "ElectGrantsTheSameTokenAnotherStampAfterEachEnd",
	"stamps begin with the token":    "ElectMakesTheFirstTheLeader",
	"followers are told the lease":   "ElectMakesOthersFollowers",

	"a marked commit checks what stands": "TheFirstLoadUnderAMarkerIsStored",
	"a lease stands, too":                "ALoadBesideALeaseIsStoredWhileThatStands",
	"a marked commit has its own stamp":  "TheFirstLoadUnderAMarkerIsStored",
	"a marked commit ends the marker":    "TheFirstLoadUnderAMarkerIsStored",
	"a marked commit tells":              "TheFirstLoadUnderAMarkerIsStored",
	"a marked commit ends the failures":  "WhatEndsTheFailuresInARow",
	"followers are told the time":        "ElectMakesOthersFollowers",
	"followers get the entry":            "ElectReturnsTheStaleEntryWhateverTheRole",
	"leases end":                         "ElectIsFreeAgainWhenTheLeaseEnds",

	"commit checks the lease":                 "CommitIsRefusedAfterTheLeaseWasEnded",
	"commit checks the lease, with its nonce": "CommitIsRefusedUnderAnothersLease",
	"commit knows its own entry":              "CommitIsAcceptedAgain",
	"commit ends the lease":                   "CommitWritesUnderTheStampOfTheLeaseAndEndsIt",
	"commit tells":                            "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"commit ends the failures":                "WhatEndsTheFailuresInARow",

	"renew never takes a lease":              "RenewNeverTakesALease",
	"renew checks the lease":                 "RenewTellsThatAnotherHoldsTheLease",
	"renew checks the lease, with its nonce": "RenewTellsThatAnotherHoldsTheLease",
	"renew knows markers":                    "RenewDoesNotTakeAMarkerForALease",
	"renew prolongs":                         "RenewProlongsTheLease",
	"renew counts from now":                  "RenewCountsFromNow",

	"fail checks the lease":                       "AForeignStampChangesNothing",
	"fail checks the lease, with its nonce":       "AForeignStampChangesNothing",
	"fail leaves a marker":                        "FailMakesOthersBackOff",
	"fail says which lease":                       "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"fail tells":                                  "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"fail counts":                                 "FailuresInARowDoubleTheBackOff",
	"fail says for how long":                      "FailuresInARowDoubleTheBackOff",
	"fail counts once":                            "FailTwiceCountsOnce",
	"failures are forgotten":                      "FailuresAreForgottenAtLast",
	"failures are remembered beyond the back-off": "FailuresAreRememberedBeyondTheBackOff",
	"release checks the lease":                    "AForeignStampChangesNothing",
	"release checks the lease, with its nonce":    "AForeignStampChangesNothing",
	"release ends the lease":                      "ReleaseLeavesNothing",
	"release leaves a pass":                       "ReleaseWithAPassLetsOthersLoadBeside",
	"passes may be unshared":                      "ReleaseWithAPassLetsOthersLoadBeside",
	"release without a pass says no lease":        "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"release with a pass says which lease":        "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"release tells":                               "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"release ends the failures":                   "WhatEndsTheFailuresInARow",

	"set makes a new stamp": "SetWritesUnderANewStamp",
	"set ends the lease":    "SetEndsTheLease",
	"set clears markers":    "MarkersAreClearedByWhoChangesTheKey",
	"set tells":             "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"set ends the failures": "WhatEndsTheFailuresInARow",
	"set drops":             "DropsTellOfChangedKeysOfTheirSpace",

	"delete removes the entry": "DeleteRemovesTheEntry",
	"delete takes many keys":   "DeleteTakesManyKeysAndUnknownOnes",
	"delete ends the lease":    "DeleteEndsTheLease",
	"delete clears markers":    "MarkersAreClearedByWhoChangesTheKey",
	"delete tells":             "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"delete ends the failures": "WhatEndsTheFailuresInARow",
	"delete drops":             "DropsTellOfChangedKeysOfTheirSpace",

	"expire keeps the entry":             "ExpireMakesTheEntryStale",
	"expire deletes what has no window":  "ExpireDeletesAnEntryWithoutWindow",
	"expire makes a new stamp":           "ExpireMakesTheEntryStale",
	"expire makes a new stamp each time": "ExpireMakesANewStampEachTime",
	"expire marks the entry":             "ExpireMakesTheEntryStale",
	"expire cuts the life":               "ExpireServesForTheWindowFromNowOn",
	"expire only shortens":               "ExpireDoesNotLengthenALife",
	"expire takes many keys":             "ExpireTakesManyKeysAndUnknownOnes",
	"expire ends the lease":              "ExpireEndsTheLease",
	"expire clears markers":              "MarkersAreClearedByWhoChangesTheKey",
	"expire tells":                       "WatchTellsOfEveryEndOfALoadAndEveryChange",
	"expire ends the failures":           "WhatEndsTheFailuresInARow",
	"expire drops":                       "DropsTellOfChangedKeysOfTheirSpace",

	"watches become ready":          "WatchTellsAllWatchers",
	"watches are of a key":          "WatchTellsOfItsOwnKeyOnly",
	"all watches are told":          "WatchTellsAllWatchers",
	"close ends a watch":            "WatchIsQuietAfterClose",
	"tags are kept":                 "EntriesKeepTheirTags",
	"tags of absences are kept":     "EntriesKeepTagsThatThereIsNoSuchThing",
	"tags are kept apart":           "TagsAreKeptApart",
	"tags are bytes":                "TagsAreKeptApart",
	"tags are of their space":       "TagsAreOfTheirSpace",
	"the epoch stays":               "TagTimeStaysUntilATagExpires",
	"no record has no epoch":        "TagsOfNoRecordAreOfNoEpoch",
	"numbers grow":                  "ExpireTagGivesAHigherNumberThanAnyBefore",
	"numbers are those of expiries": "ExpireTagGivesAHigherNumberThanAnyBefore",
	"expired tags are told":         "TagDropsTellsOfEachTag",

	"drops are of a space": "DropsTellOfChangedKeysOfTheirSpace",
	"stop ends drops":      "DropsEndWithStop",
}

func TestSuiteReportsEveryBrokenRule(t *testing.T) {
	for rule, demand := range rules {
		t.Run(rule, func(t *testing.T) {
			said := stampedetest.Complaints(t, demand, func() stampede.Store { return newReference(rule) }, referenceOptions...)
			if len(said) == 0 {
				t.Errorf("%s says nothing of a store without this rule", demand)
			}
		})
	}
}
