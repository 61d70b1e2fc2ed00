package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func channel(n int) string { return fmt.Sprintf("%s%0*x", channelPrefix, channelDigits, n) }

func TestPayloadsHoldAnyName(t *testing.T) {
	for _, project := range []string{"a", "a\nb", "\n", "ü,\n\n"} {
		f := freedLock{project, "refs/heads/ü,x", []string{channel(1), channel(2), channel(3)}, false, false}
		to, payload, ok := f.notification()
		got, queue, parsed := parsePayload(payload)
		if !ok || !parsed || to != channel(1) || got.project != f.project || got.ref != f.ref || queue != channel(2)+","+channel(3) {
			t.Errorf("%q to %q: %+v %q", payload, to, got, queue)
		}
	}
	if _, _, ok := parsePayload("a probe"); ok {
		t.Error("a probe is taken for a payload")
	}
}

func TestPayloadsAreShortAndGoToNobodyButUs(t *testing.T) {
	f := freedLock{strings.Repeat("p", 1000), strings.Repeat("r", 1000), slices.Repeat([]string{channel(1)}, 1000), false, false}
	if _, payload, ok := f.notification(); !ok || len(payload) >= 8000 {
		t.Errorf("a payload has %d bytes", len(payload))
	}
	f.waiting = []string{"", "other", channelPrefix, strings.Repeat("x", 22), channel(7), channel(8) + "x", channel(9)}
	if to, payload, _ := f.notification(); to != channel(7) || !strings.HasPrefix(payload, channel(9)+"\n") {
		t.Errorf("to %q: %q", to, payload)
	}
	f.waiting = []string{"other"}
	if to, _, ok := f.notification(); ok {
		t.Errorf("to %q", to)
	}
}

func TestAQueueThatCameTooLateIsNotForgotten(t *testing.T) {
	var in inheritances
	in.put("p", "r", channel(1)+","+channel(2))
	in.put("p", "r", channel(2)+","+channel(3))
	in.put("p", "other", "")
	got := in.take("p", []string{"other", "r"})
	if want := []string{"", channel(1) + "," + channel(2) + "," + channel(3)}; !slices.Equal(got.queues, want) || !got.woken {
		t.Errorf("%+v, want %q", got, want)
	}
	if got := in.take("p", []string{"r"}); got.woken || got.queues[0] != "" {
		t.Errorf("taken twice: %+v", got)
	}
	for n := range 3 * maxWaiting {
		in.put("p", "r", channel(n))
	}
	if got := strings.Count(in.take("p", []string{"r"}).queues[0], ",") + 1; got != maxWaiting {
		t.Errorf("%d are handed on, want %d", got, maxWaiting)
	}
}
