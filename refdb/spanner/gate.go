package spanner

import "context"

// A gate lets one read-write transaction of a driver through at a time. It
// stands only before an emulator: that runs one read-write transaction per
// session, and the client puts all of them into one session. The service has no
// such limit, and no gate (nil).
type gate chan struct{}

func newGate(emulated bool) gate {
	if !emulated {
		return nil
	}
	return make(gate, 1)
}

// enter waits for its turn, and ends with ctx.
func (g gate) enter(ctx context.Context) error {
	if g == nil {
		return nil
	}
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) leave() {
	if g != nil {
		<-g
	}
}
