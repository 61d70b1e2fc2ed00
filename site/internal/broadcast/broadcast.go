// Package broadcast wakes all who wait for a change of something that a lock guards.
package broadcast

// A Broadcast wakes all who wait for a change. The lock of what changes guards it.
type Broadcast struct{ next chan struct{} } // nil if nobody waits

// Wait returns a channel that is closed at the next change.
func (b *Broadcast) Wait() <-chan struct{} {
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

// Send wakes all who wait.
func (b *Broadcast) Send() {
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
