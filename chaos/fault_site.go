package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// killSites kills sites with SIGKILL and starts them again.
func killSites(b *bed) fault {
	return fault{"kill -9 of sites", func(ctx context.Context, random *rand.Rand) (string, error) {
		sites := b.some(random)
		for _, s := range sites {
			b.kill(s)
		}
		rest(ctx, within(random, 0, staleAfter))
		for _, s := range sites {
			if err := b.start(s); err != nil {
				return "", err
			}
		}
		return strings.Join(sites, " "), b.running(ctx)
	}}
}

// freezeSites stops sites for longer than their locks stand, and lets them go on.
func freezeSites(b *bed) fault {
	return fault{"sites frozen past stale-after", func(ctx context.Context, random *rand.Rand) (string, error) {
		sites := b.some(random)
		length := within(random, staleAfter+time.Second, 2*staleAfter)
		from := now()
		for _, s := range sites {
			if err := b.sites[s].Process.Signal(syscall.SIGSTOP); err != nil {
				return "", err
			}
		}
		rest(ctx, length)
		for _, s := range sites {
			if err := b.sites[s].Process.Signal(syscall.SIGCONT); err != nil {
				return "", err
			}
			b.frozen[b.sites[s].name] = append(b.frozen[b.sites[s].name], span{from, now()})
		}
		return described(sites, length), nil
	}}
}
