package sqlite

import (
	"math"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func TestMicrosecondsAreConvertedToDurations(t *testing.T) {
	const most = 9223372036854775 * time.Microsecond
	for micros, want := range map[int64]time.Duration{
		0:             0,
		1:             time.Microsecond,
		-1:            -time.Microsecond,
		30_000_000:    30 * time.Second,
		math.MaxInt64: most,
		math.MinInt64: -most,
	} {
		if got := durationOf(micros); got != want {
			t.Errorf("%d is %v, want %v", micros, got, want)
		}
	}
}

func TestALockIsNotStaleForOthersBeforeItsHolder(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		time.Millisecond:     1000,
		time.Millisecond + 1: 1001,
		30 * time.Second:     30_000_000,
	} {
		if got := microsOf(d); got != want {
			t.Errorf("%v is %d, want %d", d, got, want)
		}
	}
}

func TestALockWithoutTimesIsReadAsTheOldest(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	got := lockOf(now.UnixMicro(), "p", "r", row{"owner", nil, nil, nil})
	want := driver.LockInfo{
		Project: "p", Ref: "r", Owner: "owner", Heartbeat: time.Unix(0, 0).UTC(),
		Age: now.Sub(time.Unix(0, 0)), StaleAfter: driver.DefaultStaleAfter,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
