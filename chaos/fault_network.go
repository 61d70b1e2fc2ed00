package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	shortest = time.Second
	longest  = 2 * staleAfter
)

// networkFaults are those of the way between the sites and their server.
func networkFaults(b *bed, n *network) []fault {
	return []fault{
		{"connections cut, and refused", func(ctx context.Context, random *rand.Rand) (string, error) {
			sites, length := b.some(random), within(random, shortest, longest)
			n.cut(sites)
			rest(ctx, length)
			return described(sites, length), n.restore(sites)
		}},
		toxicFault(b, n, "connections delayed", "latency", []string{"upstream", "downstream"}, map[string]int{"latency": 250, "jitter": 200}),
		toxicFault(b, n, "requests swallowed", "timeout", []string{"upstream"}, map[string]int{"timeout": 0}),
		toxicFault(b, n, "replies swallowed", "timeout", []string{"downstream"}, map[string]int{"timeout": 0}),
		toxicFault(b, n, "connections reset at their next request", "reset_peer", []string{"upstream"}, map[string]int{"timeout": 0}),
	}
}

func toxicFault(b *bed, n *network, name, kind string, streams []string, attributes map[string]int) fault {
	return fault{name, func(ctx context.Context, random *rand.Rand) (string, error) {
		sites, length := b.some(random), within(random, shortest, longest)
		defer n.heal(sites)
		for _, stream := range streams {
			if err := n.poison(sites, kind, stream, attributes); err != nil {
				return "", err
			}
		}
		rest(ctx, length)
		return described(sites, length), nil
	}}
}

func described(sites []string, d time.Duration) string {
	return fmt.Sprintf("%s for %s", strings.Join(sites, " "), d.Round(time.Millisecond))
}
