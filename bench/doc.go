// Bench measures herdgate beside what people use instead of it: several pods, one Redis, loads counted inside
// the loader. It is a module of its own, so that what it compares with never reaches users' go.sum.
//
//	go run -C bench . -h
//	make bench-quick
//
// internal/contender has what is compared, internal/workload what it is put through; to add one takes a file.
// The benchmarks of the tests, go test -bench, look at single calls and at locks.
package main
