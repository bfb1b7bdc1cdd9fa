// Conformance runs the public test suite for HTTP caches, http-cache-tests, against the middleware: `make
// conformance` does it all.
//
// The suite consists of an origin server and a client, both for Node. Between them stands a proxy that is
// nothing but [net/http/httputil.ReverseProxy] in the middleware, in respect mode, so that the cache is seen as
// a shared cache on the network would be. suite/ holds the suite's pinned version, what binds its origin
// to the loopback interface, and what runs its tests and scores them by the suite's own rules.
//
// A test is required, optimal or a check. A check asks how a cache behaves, and no answer is wrong. A
// required or optimal test that does not pass has to be in expected.txt, with the reason; one that is there
// and passes has to be taken out. Either is a failure of the run.
//
// With -cache=none the proxy is bare. That measures the harness: what passes without a cache.
package main
