package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/herdgate/herdgate/stampede"
)

// routes are what a pod answers.
func (p *pod) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /report", p.getReport)
	mux.HandleFunc("GET /product/{id}", p.getProduct)
	mux.HandleFunc("POST /product/{id}/price", p.postPrice)
	mux.HandleFunc("GET /stats", p.getStats)
	p.pages.onServeMux(mux)
	mux.Handle("/chi/", p.pages.onChi())
	return mux
}

func (p *pod) getReport(w http.ResponseWriter, r *http.Request) {
	res, err := p.reports.get(r.Context())
	writeResult(w, res, err)
}

func (p *pod) getProduct(w http.ResponseWriter, r *http.Request) {
	res, err := p.products.get(r.Context(), r.PathValue("id"))
	writeResult(w, res, err)
}

// postPrice takes the new price in cents, as text.
func (p *pod) postPrice(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 16))
	cents, cerr := strconv.ParseUint(strings.TrimSpace(string(body)), 10, 31)
	if err != nil || cerr != nil {
		http.Error(w, "send the price in cents, like 1299", http.StatusBadRequest)
		return
	}
	if err := p.products.setPrice(r.Context(), r.PathValue("id"), int(cents)); err != nil {
		writeError(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (p *pod) getStats(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, map[string]any{"report": p.reports.stats(), "product": p.products.guard.Stats()})
}

// writeResult answers with a value, and says in headers where it is from.
func writeResult[T any](w http.ResponseWriter, r stampede.Result[T], err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("X-Source", r.From.String())
	w.Header().Set("Age", strconv.Itoa(int(r.Age/time.Second)))
	writeJSON(w, r.Value)
}

// writeError is where a guard's errors become answers. Redis is not among them: that it is in trouble
// is no caller's concern.
func writeError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, stampede.ErrNotFound):
		http.Error(w, "not found", http.StatusNotFound)
	case errors.Is(err, context.Canceled):
		// The client has left; nobody reads this.
		w.WriteHeader(http.StatusServiceUnavailable)
	case errors.Is(err, errMayBeStale), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, stampede.ErrLoadTimeout), errors.Is(err, stampede.ErrWaitTimeout),
		errors.Is(err, stampede.ErrOverloaded), errors.Is(err, stampede.ErrClosed):
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		logger.Error("request failed", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
	}
}

func writeJSON(w http.ResponseWriter, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n'))
}
