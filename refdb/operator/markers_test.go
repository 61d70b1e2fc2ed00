package operator

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/refdb/driver"
)

func FuzzParseMarker(f *testing.F) {
	f.Add("RECLAIM_a_b_2026-11-21T00:48:29.123456000Z")
	f.Add("RECLAIM__2026-11-21 00:48:29.123")
	f.Fuzz(func(t *testing.T, name string) {
		project, token, ok := parseMarker(name)
		if ok && (project == "" || !strings.HasPrefix(name, driver.ReclaimPrefix+project+"_")) {
			t.Fatalf("%q: project %q, token %d", name, project, token)
		}
	})
}

func TestMarkersAreParsed(t *testing.T) {
	project, token, ok := parseMarker("RECLAIM_team_a/b_2026-11-21T00:48:29.123456000Z")
	if !ok || project != "team_a/b" || token.Time().Format("15:04:05.000000") != "00:48:29.123456" {
		t.Errorf("got %q, %v, %v", project, token.Time(), ok)
	}
	for _, name := range []string{"RECLAIM_", "RECLAIM_p", "RECLAIM_p_", "RECLAIM_p_q", "p_2026-11-21T00:48:29Z", "RECLAIM__2026-11-21T00:48:29Z"} {
		if _, _, ok := parseMarker(name); ok {
			t.Errorf("%q is taken for a marker", name)
		}
	}
}
