package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/globalrefdb/globalrefdb/bench/internal/places"
	"github.com/globalrefdb/globalrefdb/bench/internal/report"
	"github.com/globalrefdb/globalrefdb/bench/internal/site"
)

const (
	listedRefs  = 100_000
	listReaders = 8

	cpuPerRequest = "cpu_ms_per_request"
)

// An httpList is how a client asks for all refs.
type httpList struct {
	name, path, protocol string
	body                 string // "": it is a GET
}

func httpLists() []httpList {
	return []httpList{
		{name: "info/refs", path: "/info/refs?service=git-upload-pack"},
		{name: "ls-refs, version 2", path: "/git-upload-pack", protocol: "version=2", body: "0014command=ls-refs\n0016object-format=sha100010009peel\n000csymrefs\n0000"},
	}
}

// listsWorkload is W12: lists of refs over HTTP.
func listsWorkload(ctx context.Context, s *servers) (workload, error) {
	programs, gitVersion, err := s.needSites(ctx)
	if err != nil {
		return workload{}, err
	}
	w := workload{
		id:    "W12",
		title: "lists of refs over HTTP",
		setting: fmt.Sprintf("%s, a repository of %s packed refs. PostgreSQL %s: %s%d clients on the same machine, which read all of each answer. CPU: of the HTTP server, of the "+
			"programs that it ran, and of the site's daemon, from /proc; not that of PostgreSQL and of the clients. Without the cache: refdbctl site http --cache 1.",
			gitVersion, report.Number(listedRefs, 0), s.postgres.version, postgresSetting, listReaders),
		atMost:  3,
		metrics: append(rateMetrics("requests/s"), metric{cpuPerRequest, "CPU ms per request", 2}),
	}
	for _, l := range httpLists() {
		w.cases = append(w.cases, benchCase{
			name: l.name, baseline: "git http-backend",
			contestants: []contestant{
				{"git http-backend", func(ctx context.Context) (sample, error) { return s.listByCGI(ctx, l) }},
				{"refdb, without the cache", func(ctx context.Context) (sample, error) { return s.listByRefdb(ctx, programs, l, "1") }},
				{"refdb", func(ctx context.Context) (sample, error) { return s.listByRefdb(ctx, programs, l, "256") }},
			},
		})
	}
	return w, nil
}

func (s *servers) listByRefdb(ctx context.Context, programs string, l httpList, cache string) (sample, error) {
	return places.With(ctx, places.Places{Sites: 1, Repos: 1, Others: listedRefs}, s.dir, nil, func(p *places.Places) (sample, error) {
		return s.postgres.withDatabase(ctx, migratedTemplate, func(url string) (_ sample, err error) {
			here := &site.Site{Name: places.SiteNames[0], Dir: p.SiteDir(0), Programs: programs, URL: url}
			if err := errors.Join(here.Configure(site.StoreNone), here.Start(ctx)); err != nil {
				return nil, err
			}
			defer here.Stop()
			if err := here.Ready(ctx); err != nil {
				return nil, err
			}
			if err := here.Enable(ctx, p.Repo(0, 0)); err != nil {
				return nil, err
			}
			address := filepath.Join(here.Dir, "http")
			server := here.Command(ctx, url, "http", "--listen", address, "--cache", cache)
			var said strings.Builder
			server.Stderr = &said
			if err := server.Start(); err != nil {
				return nil, err
			}
			defer func() {
				_ = server.Process.Signal(syscall.SIGTERM) // an interrupt is ignored where a script has started us in its background
				_ = server.Wait()
				if err != nil {
					err = here.Explain(fmt.Errorf("%w; the server said: %s", err, said.String()))
				}
			}()
			return s.measureLists(ctx, address, places.ProjectName(0), l, server.Process.Pid, here.Daemon.Process.Pid)
		})
	})
}

func (s *servers) listByCGI(ctx context.Context, l httpList) (sample, error) {
	return places.With(ctx, places.Places{Sites: 1, Repos: 1, Others: listedRefs}, s.dir, nil, func(p *places.Places) (sample, error) {
		task := cgiTask{Root: filepath.Dir(p.Repo(0, 0)), Address: filepath.Join(p.Dir, "http")}
		c, err := startChild(ctx, cgiRole, task)
		if err != nil {
			return nil, err
		}
		defer c.stop()
		var ready bool
		if err := c.receive(&ready); err != nil {
			return nil, err
		}
		return s.measureLists(ctx, task.Address, places.ProjectName(0), l, c.cmd.Process.Pid)
	})
}

// measureLists lets clients ask for lists, and measures the processes that serve them.
func (s *servers) measureLists(ctx context.Context, address, project string, l httpList, pids ...int) (sample, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: listReaders, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", address)
	}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var requests atomic.Int64
	ask := func(ctx context.Context) error {
		q, err := http.NewRequestWithContext(ctx, "GET", "http://site/"+project+".git"+l.path, nil)
		if l.body != "" {
			q, err = http.NewRequestWithContext(ctx, "POST", "http://site/"+project+".git"+l.path, strings.NewReader(l.body))
		}
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/x-git-upload-pack-request")
		q.Header.Set("Git-Protocol", l.protocol)
		response, err := client.Do(q)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		n, err := io.Copy(io.Discard, response.Body)
		if err == nil && (response.StatusCode != http.StatusOK || n < listedRefs*50) {
			err = fmt.Errorf("status %s, %d bytes", response.Status, n)
		}
		requests.Add(1)
		return err
	}
	for deadline := time.Now().Add(5 * time.Minute); ; {
		err := ask(ctx)
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the server is not ready: %w", err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
	requests.Store(0)
	before, err := cpuOf(pids)
	if err != nil {
		return nil, err
	}
	ops := make([]op, listReaders)
	for i := range ops {
		ops[i] = ask
	}
	result, err := load(ctx, s.d, ops)
	if err != nil {
		return nil, err
	}
	after, err := cpuOf(pids)
	result[cpuPerRequest] = milliseconds(after-before) / float64(requests.Load())
	return result, err
}

// cpuOf returns the CPU time of processes, and of their children that have ended.
func cpuOf(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		own, children, err := cpuTimesOf(pid)
		if err != nil {
			return 0, err
		}
		sum += own + children
	}
	return sum, nil
}

// A cgiTask is what a child serves with git http-backend, as a web server would.
type cgiTask struct{ Root, Address string }

func cgiChild(ctx context.Context, in *json.Decoder, out *json.Encoder) error {
	var task cgiTask
	if err := in.Decode(&task); err != nil {
		return err
	}
	path, err := exec.CommandContext(ctx, "git", "--exec-path").Output()
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", task.Address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(path)), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + task.Root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + os.Getenv("HOME")},
	}}
	go server.Serve(l)
	defer server.Close()
	if err := out.Encode(true); err != nil {
		return err
	}
	var end any
	if err := in.Decode(&end); err != io.EOF {
		return err
	}
	return nil
}
