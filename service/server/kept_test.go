package server

import "testing"

func TestBytesOfAnAcquisitionThatItsCallHasLeftStayCounted(t *testing.T) {
	t.Parallel()
	l := newLimiter(Limits{Calls: 10, CallsPerSubject: 10, Body: 100, Bodies: 1000, BodiesPerSubject: 100}, "calls")
	enter := func() *place {
		t.Helper()
		p, reason := l.enter("ci")
		if p == nil {
			t.Fatal(reason)
		}
		return p
	}
	first := enter()
	if reason := first.charge(60); reason != "" {
		t.Fatal(reason)
	}
	release := first.keep()
	first.leave()
	second := enter()
	if reason := second.charge(60); reason != rejectedSubjectBytes || l.now() != 1 {
		t.Errorf("%q, %d calls", reason, l.now())
	}
	second.leave()
	release()
	release() // without effect
	if l.used != (usage{}) || len(l.bySubject) != 0 {
		t.Errorf("after the end: %+v", l)
	}
	lasting := enter()
	lasting.charge(75)
	if reason := lasting.last(); reason != "" {
		t.Error(reason)
	}
	release = lasting.keep()
	lasting.leave()
	more := enter()
	if more.charge(1); more.last() != rejectedSubjectLastingBytes {
		t.Error("bytes of an acquisition that waited are not counted any more")
	}
	more.leave()
	release()
	if l.used != (usage{}) || len(l.bySubject) != 0 {
		t.Errorf("after the end of a wait: %+v", l)
	}
	third := enter()
	third.charge(100)
	third.keep()()
	third.leave()
	if l.used.bytes != 0 || len(l.bySubject) != 0 {
		t.Errorf("with a request that ended before its call: %+v", l)
	}
	empty := enter()
	release = empty.keep()
	empty.leave()
	release()
}
