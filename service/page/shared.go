package page

import (
	"context"
	"errors"
	"time"
)

// A shared value is read for one visitor at a time, and shown to all who may see it for a while: so many
// visitors cost the database as much as one.
type shared[T any] struct {
	room  chan struct{} // of one who reads; the others wait
	value *held[T]
}

type held[T any] struct {
	value T
	read  time.Time
}

func newShared[T any]() shared[T] { return shared[T]{room: make(chan struct{}, 1), value: &held[T]{}} }

// roomLimit is how long a visitor waits for others who read.
const roomLimit = 10 * time.Second

var errSlow = errors.New("the database is slow, or other visitors wait for it: try again")

// get returns the value, and calls read if it is not recent. An error is not shared. It is errSlow if others
// read for longer than roomLimit.
func (s shared[T]) get(ctx context.Context, read func() (T, error)) (T, error) {
	var none T
	select {
	case s.room <- struct{}{}:
	case <-ctx.Done():
		return none, ctx.Err()
	case <-time.After(roomLimit):
		return none, errSlow
	}
	defer func() { <-s.room }()
	if !s.value.read.IsZero() && time.Since(s.value.read) < sharedFor {
		return s.value.value, nil
	}
	value, err := read()
	if err == nil {
		*s.value = held[T]{value, time.Now()}
	}
	return value, err
}
