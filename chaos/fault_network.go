package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/globalrefdb/globalrefdb/internal/faultproxy"
)

const (
	shortest = time.Second
	longest  = 2 * staleAfter
)

// networkFaults returns the faults of the network between the sites and their server.
func networkFaults(sc *scenario, n network) []fault {
	return []fault{
		{"connections cut, and refused", func(ctx context.Context, random *rand.Rand) (string, error) {
			sites, length := sc.someSites(random), randomDuration(random, shortest, longest)
			n.cut(sites)
			sleep(ctx, length)
			return described(sites, length), n.restore(sites)
		}},
		proxyFault(sc, n, "connections delayed", func(sites []string) { n.slow(sites, 250*time.Millisecond, 200*time.Millisecond) }),
		proxyFault(sc, n, "requests swallowed", func(sites []string) { n.inject(sites, faultproxy.Requests, faultproxy.Swallow) }),
		proxyFault(sc, n, "replies swallowed", func(sites []string) { n.inject(sites, faultproxy.Replies, faultproxy.Swallow) }),
		proxyFault(sc, n, "connections reset at their next request", func(sites []string) { n.inject(sites, faultproxy.Requests, faultproxy.Reset) }),
	}
}

// proxyFault injects a fault into the proxies of some sites, for a while.
func proxyFault(sc *scenario, n network, name string, inject func(sites []string)) fault {
	return fault{name, func(ctx context.Context, random *rand.Rand) (string, error) {
		sites, length := sc.someSites(random), randomDuration(random, shortest, longest)
		inject(sites)
		defer n.clear(sites)
		sleep(ctx, length)
		return described(sites, length), nil
	}}
}

func described(sites []string, d time.Duration) string {
	return fmt.Sprintf("%s for %s", strings.Join(sites, " "), d.Round(time.Millisecond))
}

// A network is a proxy between each site and the database.
type network map[string]*faultproxy.Proxy // by site

// connect starts a site's proxy to the server at that address, and returns the proxy's address.
func (n network) connect(site, server string) (address string, err error) {
	p, err := faultproxy.New(faultproxy.Options{Server: faultproxy.Endpoint{Network: "tcp", Address: server}})
	if err != nil {
		return "", err
	}
	n[site] = p
	return p.Address(), nil
}

// connectSites puts a proxy between each site and the server, and returns the proxies' addresses by site.
func (n network) connectSites(server string) (map[string]string, error) {
	addresses := make(map[string]string)
	for _, site := range siteNames {
		address, err := n.connect(site, server)
		if err != nil {
			return nil, err
		}
		addresses[site] = address
	}
	return addresses, nil
}

// cut closes the sites' connections, and refuses new ones until restore.
func (n network) cut(sites []string) {
	for _, s := range sites {
		n[s].Cut()
	}
}

// restore ends cut.
func (n network) restore(sites []string) error {
	for _, s := range sites {
		if err := n[s].Restore(); err != nil {
			return err
		}
	}
	return nil
}

// inject lets the fault happen to all that goes in that direction.
func (n network) inject(sites []string, d faultproxy.Direction, f faultproxy.Fault) {
	for _, s := range sites {
		n[s].Set(d, f)
	}
}

// slow delays everything by between delay-jitter and delay+jitter.
func (n network) slow(sites []string, delay, jitter time.Duration) {
	for _, s := range sites {
		n[s].SetDelay(delay, jitter)
	}
}

// clear ends all faults but a cut.
func (n network) clear(sites []string) {
	for _, s := range sites {
		n[s].Clear()
	}
}

func (n network) close() {
	for _, p := range n {
		p.Close()
	}
}
