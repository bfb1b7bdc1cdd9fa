// Package e2e tests the guard on redisstore as a whole: several pods, some of them processes of their own, many callers, and
// real Redis servers that are stopped, killed, filled up, cut off and failed over meanwhile. It consists of tests only.
//
// The variable HERDGATE_SOAK, a duration, lengthens the search for bad histories.
package e2e
