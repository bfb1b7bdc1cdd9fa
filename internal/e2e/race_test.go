//go:build race

package e2e_test

const parallel = "2" // the detector makes of each a few
