// Package housetest guards the rules of the house that no compiler knows: who
// may import what, where test code may live, what a script's head must say. It
// holds tests only.
package housetest
