package site

// A broadcast wakes all who wait for a change. The lock of what changes guards it.
type broadcast struct{ next chan struct{} } // nil if nobody waits

// wait returns a channel that is closed at the next change.
func (b *broadcast) wait() <-chan struct{} {
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) send() {
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
