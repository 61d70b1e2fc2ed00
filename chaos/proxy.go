package main

import (
	"bytes"
	"context"
	"encoding/json"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A network is a proxy between each site and the database.
type network struct {
	server  *toxiproxy.ApiServer
	proxies map[string]*toxiproxy.Proxy // by site
}

func newNetwork() *network {
	return &network{
		server:  toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop()),
		proxies: make(map[string]*toxiproxy.Proxy),
	}
}

// connect starts a site's proxy to the server at that address, and returns its own.
func (n *network) connect(site, server string) (address string, err error) {
	p := toxiproxy.NewProxy(n.server, site, "127.0.0.1:0", server)
	if err := p.Start(); err != nil {
		return "", err
	}
	n.proxies[site] = p
	return p.Listen, nil
}

// cut closes the sites' connections, and refuses new ones until restore.
func (n *network) cut(sites []string) {
	for _, s := range sites {
		n.proxies[s].Stop()
	}
}

// restore ends cut.
func (n *network) restore(sites []string) error {
	for _, s := range sites {
		if err := n.proxies[s].Start(); err != nil {
			return err
		}
	}
	return nil
}

// poison puts a toxic, as toxiproxy calls them, into the sites' connections. stream is
// upstream (requests) or downstream (replies).
func (n *network) poison(sites []string, kind, stream string, attributes map[string]int) error {
	text, err := json.Marshal(map[string]any{"name": kind + stream, "type": kind, "stream": stream, "attributes": attributes})
	if err != nil {
		return err
	}
	for _, s := range sites {
		if _, err := n.proxies[s].Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
			return err
		}
	}
	return nil
}

// heal takes all toxics out again.
func (n *network) heal(sites []string) {
	for _, s := range sites {
		n.proxies[s].Toxics.ResetToxics(context.Background())
	}
}

func (n *network) close() {
	for _, p := range n.proxies {
		p.Stop()
	}
}
