package main

import (
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/past"
	"github.com/globalrefdb/globalrefdb/refdb"
)

func TestAges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "999999999999d": past.MaxDays * 24 * time.Hour,
	} {
		var a age
		if err := a.Set(text); err != nil || time.Duration(a) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(a), err)
		}
	}
	for _, text := range []string{"", "x", "d", "-1s", "0s", "-2d", "0d", "1.5d", "2026-01-01", "1e9h99"} {
		var a age
		if err := a.Set(text); err == nil || a != 0 {
			t.Errorf("%q was accepted as %v", text, time.Duration(a))
		}
	}
}

func TestValuesOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		any  bool
		want refdb.Value
		ok   bool
	}{
		{id("a"), false, refdb.Value(id("a")), true},
		{id("A"), false, refdb.Value(id("a")), true},
		{id("a") + id("b")[:24], false, refdb.Value(id("a") + id("b")[:24]), true},
		{id("0"), false, refdb.Deleted, true},
		{"ref: refs/heads/main", false, "ref: refs/heads/main", true},
		{"ref: main", false, "", false},
		{"abc123", false, "", false},
		{id("a")[1:], false, "", false},
		{"", true, "", false},
		{"7", true, "7", true},
		{"7", false, "", false},
		{"bad\xff", true, "", false},
	} {
		got, err := parseValue(c.text, c.any)
		if (err == nil) != c.ok || c.ok && got != c.want {
			t.Errorf("parseValue(%q, %v) = %q, %v", c.text, c.any, got, err)
		}
		if err != nil && exitCode(err) != exitUsage {
			t.Errorf("%v is no usage error", err)
		}
	}
	if v, err := parseOld("none", false); err != nil || v != refdb.Unknown {
		t.Errorf("none: %q, %v", v, err)
	}
}
