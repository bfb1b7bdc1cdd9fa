// Package measure is what the benchmark measures with: arrivals that do not wait for answers, latencies
// counted from when a call was due, loads counted inside the loader, requests counted on the connection and
// by Redis itself, processor time from the operating system.
package measure
