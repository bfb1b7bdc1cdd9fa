package contender

import "net/http"

// BareName is the name of the handler that others are compared with over HTTP.
const BareName = "bare handler"

var bareHandler = Contender{
	Name:  BareName,
	About: "net/http and a handler that writes the same bytes, with nothing before it.",
	Kind:  Handler,
	Wrap: func(_ *Env, h http.Handler) (Web, error) {
		return Web{h, func() error { return nil }}, nil
	},
}
