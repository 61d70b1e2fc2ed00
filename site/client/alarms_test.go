package client_test

import (
	"os"
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/client"
)

// A status with all alarms names alerts that there are.
func TestAlarmsAreAlerts(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../docs/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := client.Status{
		RootGone: true, Stuck: make([]client.Stuck, 1), HooksError: "x", MovesError: "x", Gerrit: &client.Gerrit{State: client.GerritUnguarded},
		Sessions: []client.Session{{State: client.SessionSilent}}, Readers: []client.Reader{{Oldest: 3600}}, Presence: true, Database: true,
	}
	names := s.Alarms()
	if len(names) != 7 || s.OK() {
		t.Errorf("the alarms are %q", names)
	}
	for _, name := range names {
		if !strings.Contains(string(rules), "alert: "+name+"\n") {
			t.Errorf("there is no alert %s", name)
		}
	}
	if s = (client.Status{Presence: true, Database: true}); len(s.Alarms()) != 0 || !s.OK() {
		t.Errorf("without a cause the alarms are %q", s.Alarms())
	}
}
