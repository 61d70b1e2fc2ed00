package driver

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAFreezeIsTheFirstLineOfTheRulesAndRoundTrips(t *testing.T) {
	since := time.Date(2026, 11, 29, 19, 0, 0, 0, time.UTC)
	for _, f := range []Freeze{
		{Reason: "migration", By: "o'brien@host", Since: since},
		{Reason: `"quoted" \ <b> & more — ünï`},
		{Reason: strings.Repeat("x", MaxFreezeReason), By: "two\nlines"},
	} {
		for _, rules := range []string{"", "ref *", "ref refs/heads/*\nskipRef x", "ref x\n"} {
			stored := WithFreeze(f, rules)
			if line, _, _ := strings.Cut(stored, "\n"); !strings.HasPrefix(line, "frozen {") {
				t.Errorf("the line is %q", line)
			}
			got, left, frozen := CutFreeze(stored)
			f.By = strings.ReplaceAll(f.By, "\n", "?")
			if !frozen || got != f || left != rules {
				t.Errorf("%q became %+v, rules %q, frozen %v", stored, got, left, frozen)
			}
		}
	}
	if got := WithFreeze(Freeze{}, "ref *"); got != "ref *" {
		t.Errorf("without a freeze: %q", got)
	}
}

func TestRulesWithoutAFreezeAreNotChanged(t *testing.T) {
	for _, stored := range []string{"", "ref *", "ref frozen x", "frozenRef x\nref *", "ref *\nfrozen {\"reason\":\"x\"}", " frozen x"} {
		if f, rules, frozen := CutFreeze(stored); frozen || rules != stored || f != (Freeze{}) {
			t.Errorf("%q: %+v, %q, %v", stored, f, rules, frozen)
		}
	}
}

func TestAnInvalidFreezeLineFreezesAndHasAReason(t *testing.T) {
	for line, reason := range map[string]string{
		"frozen":                       "no reason is recorded",
		"frozen ":                      "no reason is recorded",
		"frozen {}":                    "{}",
		"frozen null":                  "null",
		"frozen since\tMonday\x1b[2J":  "since?Monday?[2J",
		`frozen {"reason":"` + "\xff":  `{"reason":"` + "\uFFFD",
		`frozen {"reason":" "}`:        `{"reason":" "}`,
		`frozen {"reason":5}`:          `{"reason":5}`,
		`frozen {"since":"x","by":"y"`: `{"since":"x","by":"y"`,
	} {
		f, rules, frozen := CutFreeze(line + "\nref *")
		if !frozen || rules != "ref *" || f != (Freeze{Reason: reason}) {
			t.Errorf("%q: %+v, %q, %v", line, f, rules, frozen)
		}
	}
	if f, _, _ := CutFreeze("frozen " + strings.Repeat("ü", MaxFreezeReason)); len(f.Reason) > MaxFreezeReason || CheckFreezeReason(f.Reason) != nil {
		t.Errorf("a long line gives the reason %q", f.Reason)
	}
}

func TestAReasonForAFreezeIsALineOfText(t *testing.T) {
	for _, reason := range []string{"", " ", "two\nlines", "a\ttab", "\x1b[31mred", "a\x00", "\xff", "right\u202eto left", "line\u2028separator", strings.Repeat("x", MaxFreezeReason+1)} {
		if err := CheckFreezeReason(reason); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", reason, err)
		}
	}
	for _, reason := range []string{"x", "déménagement: 18 h", "“quotes” \u00a0", strings.Repeat("x", MaxFreezeReason)} {
		if err := CheckFreezeReason(reason); err != nil {
			t.Errorf("%q: %v", reason, err)
		}
	}
}

func TestTheRefusalOfAFrozenProjectIsPermanentAndNamesAuthorAndTime(t *testing.T) {
	err := &FrozenError{Project: "p", Freeze: Freeze{Reason: "migration", By: "ann@host", Since: time.Date(2026, 11, 29, 19, 5, 0, 0, time.UTC)}}
	if want := "the project p is frozen: migration (by ann@host since 2026-11-29 19:05 UTC)"; err.Error() != want {
		t.Errorf("%q", err)
	}
	if !errors.Is(err, ErrFrozen) || ClassOf(err) != Permanent {
		t.Errorf("class %s", ClassOf(err))
	}
}
