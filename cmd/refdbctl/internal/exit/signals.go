package exit

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// WithSignals returns a context that ends with the first SIGINT or SIGTERM, with an *Interrupted as
// its cause. The second signal has its default effect.
func WithSignals(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals)
		cancel(&Interrupted{Signal: s})
	}()
	return ctx
}

// Notify is signal.Notify except for signals that the caller made this program ignore, as nohup
// does. These stay ignored, also by child processes.
func Notify(to chan<- os.Signal, signals ...os.Signal) {
	heeded := slices.DeleteFunc(slices.Clone(signals), signal.Ignored)
	if len(heeded) > 0 { // with none, Notify would relay all signals
		signal.Notify(to, heeded...)
	}
}
