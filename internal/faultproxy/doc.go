// Package faultproxy is a TCP proxy for Redis connections that fails on demand.
//
// It reads the Redis protocol (RESP2 and RESP3) so as to fail whole requests and replies. As TCP never delivers later bytes
// without the earlier ones, neither does the proxy: a connection that lost a request or a reply loses all later ones in that
// direction too, even once the fault is over. Clients recover by connecting again; CloseConns makes them.
//
// Not supported: CLIENT REPLY, MONITOR and other ways to have requests without exactly one reply. Publish and subscribe works.
package faultproxy
