package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a storm that any machine weathers.
func small() config {
	return config{pods: 3, rate: 100, duration: 600 * time.Millisecond, timeout: 5 * time.Second,
		ttl: 200 * time.Millisecond, scan: 5 * time.Millisecond}
}

// open makes what pods share. Both are closed with t.
func open(t *testing.T) (*redisServer, *catalogue) {
	t.Helper()
	rds, err := openRedis(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rds.close)
	shop, err := openCatalogue()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shop.close(); err != nil {
			t.Error(err)
		}
	})
	return rds, shop
}

func TestHerdgateLoadsOncePerExpiryAndFailsNobody(t *testing.T) {
	rds, shop := open(t)
	cfg := small()
	if _, err := shop.fill(t.Context(), cfg.scan); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	results, err := compare(t.Context(), cfg, rds, shop, &out)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	if len(results) != len(ways) {
		t.Fatalf("%d results, want %d", len(results), len(ways))
	}
	want := int(cfg.rate * cfg.duration.Seconds())
	for _, r := range results {
		if r.sent != want || len(r.took) != want {
			t.Errorf("%s: %d requests sent, %d ended, want %d", r.name, r.sent, len(r.took), want)
		}
		if r.expiries == 0 {
			t.Errorf("%s: nothing has expired", r.name)
		}
		if !strings.Contains(out.String(), "\n"+r.name+" ") {
			t.Errorf("%s is not in the summary", r.name)
		}
	}
	if gate := results[2]; gate.loads > gate.expiries+1 || gate.errors > 0 {
		t.Errorf("herdgate: %d loads for %d expiries, %d errors", gate.loads, gate.expiries, gate.errors)
	}
	if !strings.Contains(out.String(), "One expiry cost the database") {
		t.Error("the summary does not say what it means")
	}
}

func TestCrowdCostsOneRunUnlessThePageIsPrivate(t *testing.T) {
	rds, shop := open(t)
	cfg := small()
	if _, err := shop.fill(t.Context(), cfg.scan); err != nil {
		t.Fatal(err)
	}
	undisturbed := false
	for try := 0; try < 3 && !undisturbed; try++ { // a machine that stalls may cost a lease, and so a second run
		undisturbed = true
		var out bytes.Buffer
		all, err := crowds(t.Context(), cfg, rds, shop, &out)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(out.String())
		for i, path := range []string{"/mux/report", "/chi/report", "/mux/account", "/chi/account"} {
			c := all[i]
			if c.path != path || c.strangers > 0 || c.errors > 0 {
				t.Errorf("%s: %+v", path, c)
			}
			switch {
			case strings.HasSuffix(path, "account"):
				if c.runs != crowdSize {
					t.Errorf("%s: %d runs for %d customers", path, c.runs, crowdSize)
				}
			case c.runs != 1:
				undisturbed = false
			}
		}
	}
	if !undisturbed {
		t.Error("a crowd that asks for the report never costs one run")
	}
}

// trigger calls f when text is written.
type trigger struct {
	bytes.Buffer
	text string
	f    func()
}

func (w *trigger) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.f()
	}
	return w.Buffer.Write(p)
}

func TestCommandEndsCleanlyWhenItIsInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		args       []string
		text, want string
	}{
		"at once":         {nil, "Redis:", "Redis:"},
		"before a storm":  {nil, "1. ", "Interrupted"},
		"during a storm":  {nil, " sent ", "Interrupted"},
		"while it serves": {[]string{"-serve", "-addr", "127.0.0.1:0"}, "Ctrl-C", "pod 3: report 0 hits"},
	} {
		t.Run(name, func(t *testing.T) {
			tmp := t.TempDir()
			t.Setenv("TMPDIR", tmp)
			t.Setenv("TEMP", tmp)
			t.Setenv("REDIS_URL", "")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var interrupted time.Time
			out := &trigger{text: test.text, f: func() {
				if ctx.Err() == nil {
					interrupted = time.Now()
				}
				cancel()
			}}
			var errs bytes.Buffer
			args := append([]string{"-scan", "5ms", "-rate", "50", "-duration", "1h"}, test.args...)
			if code := command(ctx, args, out, &errs); code != 0 || errs.Len() > 0 {
				t.Errorf("exit code %d, %s", code, errs.String())
			}
			if took := time.Since(interrupted); took > drainTimeout {
				t.Errorf("it took %v to end", took)
			}
			if !strings.Contains(out.String(), test.want) {
				t.Errorf("no %q in:\n%s", test.want, out.String())
			}
			if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestCommandExplainsItself(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for name, test := range map[string]struct {
		args []string
		code int
		want []string
	}{
		"help":           {[]string{"-h"}, 0, []string{"usage: go run ./example", "-rate", "-serve"}},
		"unknown flag":   {[]string{"-x"}, 2, []string{"-x"}},
		"all faults":     {[]string{"-pods", "0", "-ttl", "1ns", "-rate", "-1", "x"}, 2, []string{"-pods", "-ttl", "-rate", `"x"`}},
		"bad address":    {[]string{"-serve", "-addr", "x"}, 2, []string{"-addr"}},
		"no Redis there": {[]string{"-redis", "127.0.0.1:1"}, 1, []string{"127.0.0.1:1"}},
		"busy port":      {[]string{"-serve", "-pods", "1", "-scan", "5ms", "-addr", busy.Addr().String()}, 1, []string{"-addr: listen"}},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			if code := command(t.Context(), test.args, io.Discard, &errs); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			for _, want := range test.want {
				if !strings.Contains(errs.String(), want) {
					t.Errorf("no %q in:\n%s", want, errs.String())
				}
			}
		})
	}
}

func TestPodsShareWhatTheyStore(t *testing.T) {
	rds, shop := open(t)
	if err := shop.addProducts(); err != nil {
		t.Fatal(err)
	}
	if err := shop.addOrders(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	cfg := small()
	cfg.ttl = time.Hour
	pods, err := openPods(t.Context(), &cfg, rds, shop, herdgate, shop.report)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := closePods(pods); err != nil {
			t.Error(err)
		}
	}()
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	for i, step := range []struct {
		pod          int
		path, post   string
		code         int
		source, want string
	}{
		{0, "/report", "", 200, "load", `"orders": 100`},
		{0, "/report", "", 200, "store", `"orders": 100`},
		{1, "/report", "", 200, "store", `"orders": 100`},
		{0, "/product/p001", "", 200, "load", `"cents": 8218`},
		{1, "/product/p001", "", 200, "store", `"cents": 8218`},
		{2, "/product/p001/price", "1299", 204, "", ""},
		{1, "/product/p001", "", 200, "load", `"cents": 1299`},
		{0, "/product/p001", "", 200, "store", `"cents": 1299`},
		{0, "/product/nosuch", "", 404, "", "not found"},
		{1, "/product/nosuch", "", 404, "", "not found"},
		{0, "/product/nosuch/price", "1", 404, "", "not found"},
		{0, "/product/p001/price", "free", 400, "", "in cents"},
		{1, "/stats", "", 200, "", `"Hits": 2`},
		{0, "/mux/report", "", 200, "", `"orders": 100`},
		{1, "/mux/report", "", 200, "", `"orders": 100`},
		{2, "/chi/report", "", 200, "", `"orders": 100`},
		{0, "/chi/account", "", 200, "", "account of"},
	} {
		method := http.MethodGet
		if step.post != "" {
			method = http.MethodPost
		}
		req, err := http.NewRequestWithContext(t.Context(), method, pods[step.pod].url+step.path, strings.NewReader(step.post))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != step.code || resp.Header.Get("X-Source") != step.source || !strings.Contains(string(body), step.want) {
			t.Errorf("step %d, %s %s: %d, source %q:\n%s", i, method, step.path, resp.StatusCode, resp.Header.Get("X-Source"), body)
		}
	}
}
