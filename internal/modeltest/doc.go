// Package modeltest runs real guards over a store that can be stepped, and checks what they promise
// after each step. It holds tests only.
//
// A run has two or three pods, up to three keys and a writer. Every command that a pod sends to the
// store waits until a seeded scheduler runs it, and its answer waits until the scheduler delivers it, so
// that any order of any two things can happen: commands late, twice or never, answers lost, pods held up
// or crashed, time that passes at the worst moment, a store that restarts empty.
//
// HERDGATE_SEED=n runs one seed alone and prints what happened; HERDGATE_STEPS sets the number of steps.
// A seed decides all but the guard's own dice (how long it polls, its jitter): where those matter, a
// seed that failed once may need a few runs to fail again, and is run several times for that.
package modeltest
