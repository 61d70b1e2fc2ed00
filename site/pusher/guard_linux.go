package pusher

import (
	"errors"

	"github.com/globalrefdb/globalrefdb/site/wire"
)

// Guard returns the guard of that random ID which has connected. Boot is this boot's ID.
func (p Hook) Guard(id, boot string) (Guard, error) {
	if p.pid <= 0 {
		return Guard{}, errors.New(wire.GuardInAnotherNamespace)
	}
	namespace, err := pidNamespace()
	if err != nil {
		return Guard{}, err
	}
	s, err := statOf(p.pid)
	if err != nil {
		return Guard{}, goneUnless(err)
	}
	return Guard{Agent{boot, p.pid, s.start}, namespace, id}, nil
}

// Watch opens the guard's process, if it is in this PID namespace. The error is [ErrGone] if it has ended.
func (g Guard) Watch() (*Watched, error) {
	if here, err := pidNamespace(); err != nil || here != g.Namespace {
		return nil, errors.Join(err, errors.New(wire.GuardInAnotherNamespace))
	}
	return Watch(g.Agent)
}
