package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/globalrefdb/globalrefdb/cmd/refdbctl/internal/exit"
)

func TestThePolicyIsSetWithAReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	policy := func(want string, set bool) {
		t.Helper()
		var got struct {
			Policy string     `json:"policy"`
			Since  *time.Time `json:"since"`
		}
		if err := json.Unmarshal([]byte(w.do(t, "recover", "policy", "show", "-o", "json")), &got); err != nil {
			t.Fatal(err)
		}
		if got.Policy != want || (got.Since != nil) != set {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	policy("wait", false)
	for says, args := range map[string][]string{
		"POLICY":               {"--reason", "why"},
		"is no policy":         {"maybe", "--reason", "why"},
		"--reason TEXT is req": {"synchronous"},
	} {
		w.run(t, append([]string{"recover", "policy", "set"}, args...)...).is(t, exit.Misuse, says)
	}
	policy("wait", false)
	if got := w.do(t, "doctor"); !strings.Contains(got, "recovery policy") || strings.Contains(got, "synchronous since") {
		t.Error(got)
	}
	w.do(t, "recover", "policy", "set", "synchronous", "--reason", "no standby lags")
	policy("synchronous", true)
	if got := w.do(t, "doctor"); !strings.Contains(got, "synchronous since") {
		t.Error(got)
	}
	if got := w.do(t, "recover", "--status"); !strings.Contains(got, "POLICY       synchronous\n") {
		t.Error(got)
	}
	if got := w.do(t, "audit", "list"); !strings.Contains(got, "recover policy set") || !strings.Contains(got, "no standby lags") {
		t.Error(got)
	}
	w.do(t, "recover", "policy", "set", "wait", "--reason", "a standby lags")
	policy("wait", true)
}
