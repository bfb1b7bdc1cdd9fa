// Package bench measures herdgate beside what it stands on: raw GET, and raw GET and PTTL in one
// pipeline, in the same run and against the same Redis, which it starts by itself. It is a module of its
// own, so that what it compares with never reaches users' go.sum. See the README's "Speed".
package bench
