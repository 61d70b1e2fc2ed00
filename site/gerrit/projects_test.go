package gerrit_test

import (
	"slices"
	"testing"
	"time"
)

func TestProjectsWithoutRepositoryOfAnEarlierGerrit(t *testing.T) {
	t.Parallel()
	d := open(t, map[string]string{"etc/gerrit.config": "", "data/refdb/without-repository": "team/app\n"})
	if got, err := d.ProjectsWithoutRepository(time.Now().Add(time.Minute)); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestProjectsWithoutRepositoryAreOneALine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{"": nil, "team/app\na name with spaces\n": {"team/app", "a name with spaces"}} {
		d := open(t, map[string]string{"etc/gerrit.config": "", "data/refdb/without-repository": text})
		if got, err := d.ProjectsWithoutRepository(time.Now().Add(-time.Minute)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if got, err := open(t, map[string]string{"etc/gerrit.config": ""}).ProjectsWithoutRepository(time.Time{}); err != nil || got != nil {
		t.Errorf("none: %q, %v", got, err)
	}
}
