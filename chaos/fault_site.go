package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"syscall"
	"time"
)

// killSites kills sites with SIGKILL and starts them again.
func killSites(sc *scenario) fault {
	return fault{"kill -9 of sites", func(ctx context.Context, random *rand.Rand) (string, error) {
		sites := sc.someSites(random)
		for _, s := range sites {
			sc.kill(s)
		}
		sleep(ctx, randomDuration(random, 0, staleAfter))
		for _, s := range sites {
			if err := sc.start(s); err != nil {
				return "", err
			}
		}
		return strings.Join(sites, " "), sc.running(ctx)
	}}
}

// freezeSites stops sites until their locks are stale, and lets them go on.
func freezeSites(sc *scenario) fault {
	return fault{"sites frozen past stale-after", func(ctx context.Context, random *rand.Rand) (string, error) {
		sites := sc.someSites(random)
		length := randomDuration(random, staleAfter+time.Second, 2*staleAfter)
		from := now()
		for _, s := range sites {
			if err := sc.sites[s].Process.Signal(syscall.SIGSTOP); err != nil {
				return "", err
			}
		}
		sleep(ctx, length)
		for _, s := range sites {
			if err := sc.sites[s].Process.Signal(syscall.SIGCONT); err != nil {
				return "", err
			}
			sc.frozen[sc.sites[s].name] = append(sc.frozen[sc.sites[s].name], span{from, now()})
		}
		return described(sites, length), nil
	}}
}
