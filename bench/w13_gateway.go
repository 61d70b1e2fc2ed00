package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

// A gateway is a client of etcd's gateway: JSON over HTTP, which etcd itself passes on as gRPC.
type gateway struct {
	url, prefix string
	lease       string // its ID, under which all locks of the client are
}

// openGateway grants a lease.
func openGateway(ctx context.Context, url, prefix string) (*gateway, error) {
	g := &gateway{url: url, prefix: prefix}
	var granted struct{ ID string }
	if err := g.call(ctx, "/v3/lease/grant", map[string]any{"TTL": serviceLease.Seconds()}, &granted); err != nil {
		return nil, err
	}
	g.lease = granted.ID
	return g, nil
}

// lockAndRelease locks a ref, and releases it.
func (g *gateway) lockAndRelease(ctx context.Context, ref string) error {
	var locked struct {
		Key []byte `json:"key"`
	}
	if err := g.call(ctx, "/v3/lock/lock", map[string]any{"name": []byte(g.prefix + ref), "lease": g.lease}, &locked); err != nil {
		return err
	}
	return g.call(ctx, "/v3/lock/unlock", map[string]any{"key": locked.Key}, &struct{}{})
}

func (g *gateway) call(ctx context.Context, path string, request, response any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	return json.Unmarshal(text, response)
}

// gateway measures n clients of etcd's gateway. Etcd is in this process, which only waits meanwhile.
func (s *servers) gateway(ctx context.Context, n int) (sample, error) {
	tasks, prefix := make([]serviceTask, n), s.etcd.keySpace()
	for i := range tasks {
		tasks[i] = serviceTask{Worker: i, D: s.d, Gateway: "http://" + s.etcd.endpoint, Prefix: prefix}
	}
	result, err := s.measureWork(ctx, tasks, func() (consumption, error) {
		own, _, err := cpuTimesOf(os.Getpid())
		return consumption{database: own}, err
	})
	delete(result, serverCPU)
	return result, err
}
