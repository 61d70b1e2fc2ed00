package catchup_test

import (
	"strings"
	"testing"

	"github.com/globalrefdb/globalrefdb/site/catchup"
	"github.com/globalrefdb/globalrefdb/site/internal/sitetest"
)

// A dry run says what the sync then does, also where git refuses.
func TestADryRunOfASyncTellsTheTruth(t *testing.T) {
	t.Parallel()
	r := sitetest.NewReplicas(t)
	old := r.A.Commit(t, "old")
	r.Both(t, "refs/heads/gone", old)
	r.Both(t, "refs/heads/deep/er", old)
	r.Sync(t)
	r.Both(t, "refs/heads/gone", "")
	r.Both(t, "refs/heads/gone/on", old) // gone makes room for it
	r.Both(t, "refs/heads/deep/er", "")
	r.Both(t, "refs/heads/deep", old)
	r.B.Quietly(t, "update-ref", "refs/heads/in", r.B.Commit(t, "x")) // which the database does not know
	r.Both(t, "refs/heads/in/theway", old)
	r.Both(t, "refs/heads/free", old)
	dry, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a", DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(dry.Summary(), "failed heads/in/theway") {
		t.Errorf("the dry run says %s", dry.Summary())
	}
	wet, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a"})
	if err != nil || wet.Summary() != dry.Summary() {
		t.Errorf("%v; the dry run says\n%s, the sync does\n%s", err, dry.Summary(), wet.Summary())
	}
}

func TestADryRunOfASyncRefusesWhatTheSyncRefuses(t *testing.T) {
	t.Parallel()
	r := sitetest.NewGuardedThatIsBehind(t)
	for _, dry := range []bool{false, true} {
		s, err := r.TrySync(t.Context(), r.DB, catchup.Options{Peer: "a", DryRun: dry})
		if err == nil || !strings.Contains(err.Error(), "would not move the refs") {
			t.Errorf("dry run %v: %v", dry, err)
		}
		if told := s.Summary() != ""; told != dry {
			t.Errorf("dry run %v tells %q", dry, s.Summary())
		}
	}
}
