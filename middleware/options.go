package middleware

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// Options configure a cache. All may be left zero, and New takes nil for that.
type Options struct {
	// Policy is for all routes that have none of their own, see Cache.With.
	Policy Policy

	// Scheme is the scheme of all URLs in keys. Set it to "https" where a proxy ends TLS. Default: that of
	// the connection.
	Scheme string
	// Host replaces the host of all requests, in keys and in the request that the handler sees when
	// its response is to be stored. Default none.
	Host string
	// Hosts lists the hosts that are served from the cache, in lower case, with the port if it is not the
	// scheme's own. Requests for others go to the handler, past the cache. Default: all hosts, each on
	// its own; clients choose what they send, so a list also bounds what they can have stored.
	Hosts []string

	// StatusName names this cache in Cache-Status. Default "herdgate"; "-" leaves the field out.
	StatusName string
	// Observe is told of each response, on the request's goroutine. It must be quick. Default none.
	Observe func(Event)

	// Guard holds the options of the guard below. Its Name defaults to "http"; caches of one name share
	// their entries. The lifetimes of its Policy, its Codec, CopyOnRead and MaxValueSize are the cache's own and
	// must be left zero.
	Guard stampede.Options
}

// Event is what Options.Observe is told of a request. More fields may come.
type Event struct {
	Route   string // pattern of the route, "" if it is not known
	Method  string
	Outcome Outcome
	Detail  string // why it was not stored, or went past the cache; "" if neither
}

// Outcome says where a response came from.
type Outcome uint8

// Where a response came from.
const (
	Hit       Outcome = iota + 1 // the store, fresh
	Stale                        // the store, stale
	Validated                    // the store, after the handler has confirmed it
	Miss                         // the handler, run for this request
	Collapsed                    // the handler, run for another request
	Bypass                       // the handler, past the cache
)

var outcomeNames = [...]string{"", "hit", "stale", "validated", "miss", "collapsed", "bypass"}

// String returns a word for metric labels.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "unknown"
}

// The life of a spec, which is renewed for as long as it is used: it must not end before the responses that
// it leads to.
const (
	specTTL      = time.Hour
	specStaleFor = 23 * time.Hour
)

// guard returns the options of the guard.
func (o *Options) guard() stampede.Options {
	g := o.Guard
	if g.Name == "" {
		g.Name = "http"
	}
	g.Codec = codec{}
	g.MaxValueSize = -1 // MaxBody and MaxHeader are the bounds
	g.Policy.TTL, g.Policy.StaleFor, g.Policy.StaleIfError = specTTL, specStaleFor, -1
	g.Policy.NotFoundTTL = -1
	return g
}

func (o *Options) validate() error {
	var errs []error
	g := &o.Guard
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"Policy.TTL", g.Policy.TTL != 0}, {"Policy.StaleFor", g.Policy.StaleFor != 0},
		{"Policy.StaleIfError", g.Policy.StaleIfError != 0}, {"Policy.NotFoundTTL", g.Policy.NotFoundTTL != 0},
		{"Codec", g.Codec != nil}, {"CopyOnRead", g.CopyOnRead}, {"MaxValueSize", g.MaxValueSize != 0},
	} {
		if f.set {
			errs = append(errs, fmt.Errorf("middleware: Options.Guard.%s is the cache's own; leave it zero", f.name))
		}
	}
	if o.Scheme != "" && o.Scheme != "http" && o.Scheme != "https" {
		errs = append(errs, fmt.Errorf("middleware: Options.Scheme is %q; it may be http or https", o.Scheme))
	}
	if o.Host != "" && len(o.Hosts) > 0 {
		errs = append(errs, errors.New("middleware: Options.Host replaces all hosts, so there is nothing for Options.Hosts to choose"))
	}
	for _, host := range append([]string{o.Host}, o.Hosts...) {
		if host != strings.ToLower(host) || strings.ContainsAny(host, "/ ") {
			errs = append(errs, fmt.Errorf("middleware: %q is no host in lower case", host))
		}
	}
	if o.StatusName != "" && o.StatusName != "-" && !token(o.StatusName) {
		errs = append(errs, fmt.Errorf("middleware: Options.StatusName %q is no token", o.StatusName))
	}
	return errors.Join(errs...)
}
