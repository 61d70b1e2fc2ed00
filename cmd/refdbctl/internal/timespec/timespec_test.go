package timespec_test

import (
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/timespec"
)

func TestATimeIsReadFromWhatPeopleType(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"2026-01-31":                     time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC),
		"2026-01-31T15:04:05Z":           time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC),
		"2026-01-31T15:04:05.000006Z":    time.Date(2026, 1, 31, 15, 4, 5, 6000, time.UTC),
		"2026-01-31T15:04:05+02:00":      time.Date(2026, 1, 31, 13, 4, 5, 0, time.UTC),
		"2026-01-31 15:04:05Z":           time.Date(2026, 1, 31, 15, 4, 5, 0, time.UTC), // as tables have it
		"90m":                            now.Add(-90 * time.Minute),
		"2h ago":                         now.Add(-2 * time.Hour),
		"1h30m ago":                      now.Add(-90 * time.Minute),
		"3d ago":                         now.AddDate(0, 0, -3),
		"3d":                             now.AddDate(0, 0, -3),
		"yesterday":                      {},
		"2h  ago":                        {},
		"ago":                            {},
		" ago":                           {},
		"":                               {},
		"-2h ago":                        {},
		"0s":                             {},
		"-3d":                            {},
		"d":                              {},
		"1,5h":                           {},
		"2026-13-01":                     {},
		"2026-01-31T15:04:05":            {}, // of which place?
		"4711":                           {}, // a position
		"2026-01-31T15:04:05Z and later": {},
	} {
		got, err := timespec.ParseTime(text)
		switch {
		case want.IsZero() && (err == nil || !strings.Contains(err.Error(), timespec.Forms)):
			t.Errorf("%q: %v, %v", text, got.Resolve(now), err)
		case !want.IsZero() && (err != nil || !got.Resolve(now).Equal(want)):
			t.Errorf("%q: %v, %v, want %v", text, got.Resolve(now), err, want)
		}
	}
}

func TestAPositionIsANumber(t *testing.T) {
	for text, want := range map[string]struct {
		is, bad bool
	}{
		"0": {true, false}, "4711": {true, false}, "9223372036854775807": {true, false}, "9223372036854775808": {true, true},
		"": {}, "-1": {}, "+1": {}, "7d": {}, "2026-01-31": {}, "0x10": {}, "1 ": {},
	} {
		if _, ok, err := timespec.ParsePosition(text); ok != want.is || (err != nil) != want.bad {
			t.Errorf("%q: %t, %v", text, ok, err)
		}
	}
	if p, _, _ := timespec.ParsePosition("0042"); p != 42 {
		t.Errorf("0042 is %d", p)
	}
}

func TestAnEarlierValueIsNamedAsInGit(t *testing.T) {
	for text, want := range map[string]int{
		"refs/heads/main": 1, "refs/heads/main@{1}": 1, "refs/heads/main@{12}": 12,
		"refs/heads/main@{0}": 0, "refs/heads/main@{-1}": 0, "refs/heads/main@{+1}": 0, "refs/heads/main@{": 0, "refs/heads/main@{}": 0,
		"refs/heads/main@{1": 0, "refs/heads/main@{1}x": 0, "refs/heads/main@{2.hours}": 0, "refs/heads/main@{1}@{1}": 0, "refs/heads/main@{99999999999999999999}": 0,
	} {
		ref, n, err := timespec.ParseBack(text)
		if n != want || (err == nil) != (want > 0) || want > 0 && ref != "refs/heads/main" {
			t.Errorf("%q: %q, %d, %v", text, ref, n, err)
		}
	}
}
