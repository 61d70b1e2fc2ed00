package gerrit_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/site/client"
	"github.com/globalrefdb/globalrefdb/site/gerrit"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A Gerrit opens its indexes long before it serves: only one that serves without a session raises an
// alarm.
func TestAGerritThatHangsWhileItStartsIsNotWithoutTheGuard(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	index := filepath.Join(dir, "index/accounts_0013/write.lock")
	now := time.Now()
	alarms := 0
	w := gerrit.Watch{Path: func() string { return dir }, HasSession: func(int) bool { return false }, Alarm: func() { alarms++ },
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return now }}
	promise := func(what, state string, wantAlarms int) {
		t.Helper()
		w.Look(t.Context())
		now = now.Add(time.Hour)
		w.Look(t.Context())
		if got := w.Status().State; got != state || alarms != wantAlarms {
			t.Errorf("%s: %s after %d alarms, want %s after %d", what, got, alarms, state, wantAlarms)
		}
	}
	_, stop := sitetest.Lock(t, index)
	promise("it hangs while it starts", client.GerritStarting, 0)
	stop()
	promise("it has ended", client.GerritStopped, 0)
	_, stop = sitetest.LockAndListen(t, index)
	promise("it serves", client.GerritUnguarded, 1)
	stop()
}
