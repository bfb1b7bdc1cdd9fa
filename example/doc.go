// Command example puts a popular page under load while its cache entry expires again and again, and
// shows what that costs the database: without protection, with a singleflight in each pod, and with
// herdgate.
//
//	go run ./example
//
// It needs nothing but Go. The page is a report over all orders of a small shop, which are kept in an
// embedded database file; to make the report, every order is read and decoded. Three pods, each with
// its own HTTP server, Redis client and guard, run in the one process. Redis is an embedded stand-in
// unless -redis or REDIS_URL names a real one. The storm comes over real HTTP at a fixed rate, whether
// or not earlier requests have been answered, and each latency is counted from the moment at which the
// request was due.
//
// Then a crowd asks for the same report as a page behind the HTTP middleware, on net/http's router and on
// chi's, and another one for a private page: the first costs one run of the handler, the second one run for
// each request.
//
// With -serve there is no storm, and the pods stay up to be asked by hand:
//
//	go run ./example -serve
//	curl -i localhost:8080/report        # X-Source: load, then store
//	curl -i localhost:8081/report        # another pod: X-Source: store
//	curl -i localhost:8081/product/p001
//	curl -i -d 1299 localhost:8080/product/p001/price
//	curl -i localhost:8081/product/p001  # the new price, on every pod
//	curl -i localhost:8080/mux/report    # Cache-Status: the handler has run
//	curl -i localhost:8081/mux/report    # another pod: a hit
//	curl -i -H 'X-Customer: me' localhost:8080/chi/account
//	curl localhost:8080/stats
//
// The code to copy from is in guarded.go (a guard and how it is made), handlers.go (what a handler does
// with what a guard returns), product.go (another guard; a write, and what to do when the Delete after it
// fails), pages.go (the middleware on two routers) and pods.go (the store, and in which order all is closed).
package main
