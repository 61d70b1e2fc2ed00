package lifecycle

import (
	"slices"
	"testing"
)

// Who says that rows have changed waits for nobody, however many say so and whether or not the tasks still run.
func TestWhoSaysThatRowsHaveChangedWaitsForNobody(t *testing.T) {
	l := newProjectTasks()
	for _, names := range [][]string{{"a"}, nil, {"b", "c"}, {"a"}} {
		l.rowsChanged(names)
	}
	<-l.woken
	if got := l.takeChanged(); !slices.Equal(got, []string{"a", "b", "c", "a"}) {
		t.Error(got)
	}
	if got := l.takeChanged(); len(got) > 0 {
		t.Errorf("once more: %v", got)
	}
}
