// Package middleware keeps the responses of HTTP handlers in a store of package stampede and runs a handler
// once where many requests want the same. It is a shared cache after RFC 9111 that sits within the origin.
//
//	cache, err := middleware.New(store, &middleware.Options{
//		Policy: middleware.Policy{TTL: time.Minute},
//	})
//	mux.Handle("GET /report", cache.Handler(report))
//
// Handler works with net/http and every router; Chi is the same for chi.
//
// What one caller may not see is given to nobody else. The sections below argue why; docs/http.md shows what
// is stored, for how long, and what is sent.
//
// # Who gets which response
//
// A response is judged when the handler has written its header. If it may not be stored (no-store, private,
// Set-Cookie, "Vary: *", an Authorization that it does not allow for, a status or a stream that is never
// stored), the load ends at once without a value: it goes to the request that ran the handler, and to no
// other. All requests that waited then run the handler themselves, in parallel, and for Policy.PassFor none
// waits for another one.
//
// A response that may be stored reaches other requests in one way only: as a value of the guard, with the key
// it was stored under. Whoever gets one looks at it again: the key must be the request's own, letter for
// letter, in all that the URL, the policy and Vary say that the response depends on; it must not have to be
// validated; it must be fresh, or stale within what it allows; and a request with credentials takes only
// what is declared fit for that. Whoever may not take it runs the handler itself.
//
// What the handler depends on without saying so, nobody can know. Package middlewaretest helps to find out.
//
// # Why nothing from before an invalidation is served after it
//
// For each URL there is a base entry. Either it is the response, or it holds a random generation, and the
// responses are stored under keys that contain the generation. So a response is reached only through the base
// entry, and an invalidation deletes that. Suppose that a load began before it.
//
//   - If the load was to write the base entry, it is refused: the guard refuses any commit of a load that
//     began before a Delete of its key.
//   - If it was to write a response under a generation, then it has read that from the base entry before
//     the handler ran, or makes it known by a base entry that it writes later, which is the first case. The
//     base entry of the old generation is gone. It can come back only by a load of the base entry that
//     renews it, and that is the first case again. A spec written without a load (it has more fields of
//     Vary) always has a new generation, under which nothing is stored yet.
//
// The same holds for all variants at once, and for responses that are stored after the invalidation by a load
// that began before it: nothing leads to them.
package middleware
