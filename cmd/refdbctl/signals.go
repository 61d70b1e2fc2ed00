package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// withSignals returns a context that ends, with an *interrupted as its cause,
// with the first SIGINT or SIGTERM. The second has its usual effect.
func withSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(&interrupted{signal: s})
	}()
	return ctx
}

// notify is signal.Notify, except for signals that our caller made us ignore,
// as nohup does: they are ignored by us, and by what we start.
func notify(to chan<- os.Signal, signals ...os.Signal) {
	heeded := slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
	if len(heeded) > 0 { // none would mean all
		signal.Notify(to, heeded...)
	}
}
